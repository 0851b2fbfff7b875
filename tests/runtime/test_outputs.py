"""The output directory of a real cold compile: all files there, right, and made again."""

import contextlib
import gzip
import json
import os
import pstats
import pty
import re
import shutil
import stat
import subprocess
import sys

import pytest

import browser as browsers
import json_schema
import support

pytestmark = pytest.mark.root_bpf

FORMATS = ("pstats", "chrome", "folded", "speedscope", "perf-script", "html")


def stem(row):
    """The file names that torch itself would use."""
    function = "_compile_inner" if row["kind"] == "forward" else "compile_backward"
    attempt = f"_{row['attempt']}" if row["attempt"] else ""
    return f"{function}_{row['trace_id'].replace('/', '_')}{attempt}"


def profile_path(run, row):
    return run.directory / "compiles" / f"{stem(row)}.profile"


# ---- the directory -------------------------------------------------------------------------------


def test_files_are_where_they_should_be(compile_run):
    names = {
        path.relative_to(compile_run.directory).as_posix()
        for path in compile_run.directory.rglob("*")
        if path.is_file()
    }
    assert {"recording.dynprof", "report.txt", "report.html", "compiles.json", "trace.json.gz"} <= names
    for row in compile_run.ledger["compiles"]:
        assert f"compiles/{stem(row)}.profile" in names
        assert f"compiles/{stem(row)}.trace.json.gz" in names
    known = re.compile(
        r"recording\.dynprof|report\.(txt|html)|(compiles|operators)\.json|trace\.json\.gz|"
        r"(compiles/(_compile_inner|compile_backward)_\d+_\d+(_\d+)?"
        r"\.(profile|trace\.json\.gz|(dynamo\.)?svg|dynamo\.(profile|txt|folded)))|generated/.*"
    )
    assert not [name for name in names if not known.fullmatch(name)]


@pytest.mark.skipif(not shutil.which("dot"), reason="Graphviz is not installed")
def test_call_graphs_are_drawn_where_they_are_asked_for(compile_run):
    drawn = {path.name for path in (compile_run.directory / "compiles").glob("*.svg")}
    assert {f"{stem(row)}.svg" for row in compile_run.ledger["compiles"]} <= drawn


def test_files_are_private(compile_run):
    for path in [compile_run.directory, *compile_run.directory.rglob("*")]:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), f"{path}: {mode:o}"


# ---- compiles.json -------------------------------------------------------------------------------

def test_ledger_schema(compile_run):
    ledger = compile_run.ledger
    assert json_schema.compiles_problems(ledger) == []
    assert ledger["pid"] == compile_run.truth["pid"]
    assert ledger["torch"] == compile_run.truth["torch"]
    assert ledger["python"] == compile_run.truth["python"]
    assert ledger["frequency_hz"] == 999
    for row in ledger["compiles"]:
        assert row["samples"] > 0
        assert len({phase["name"] for phase in row["phases"]}) == len(row["phases"])
        # What the job certainly had, so that the schema's optional parts are looked at too.
        assert row["thread"] is not None and row["torch_phases"]
    # A compile of some milliseconds may wait for nothing.
    assert any(row["wait_kinds"] for row in ledger["compiles"])
    assert any(row["children"] for row in ledger["compiles"])
    assert "processes" in ledger


def test_ledger_adds_up(compile_run):
    ledger, dump = compile_run.ledger, compile_run.dump
    stood_for = [0] * len(dump.compiles)
    for sample in dump.samples:
        if sample.compile >= 0:
            stood_for[sample.compile] += sample.cpu_ns
    by_clock = {(c["id"], c["kind"], c["attempt"]): ns for c, ns in zip(dump.compiles, stood_for, strict=True)}
    assert ledger["samples"] == len(dump.samples)
    by_key = {(c["id"], c["kind"], c["attempt"]): c["samples"] for c in dump.compiles}
    for row in ledger["compiles"]:
        key = (row["trace_id"], row["kind"], row["attempt"])
        assert row["samples"] == by_key[key]
        assert row["cpu_s"] == pytest.approx(by_clock[key] / 1e9, abs=1e-6)
        assert sum(phase["samples"] for phase in row["phases"]) == row["samples"]
        cpu = sum(phase["cpu_s"] for phase in row["phases"])
        assert cpu == pytest.approx(row["cpu_s"], abs=1e-4)


def test_phases_are_those_of_a_compile(compile_run):
    forward = next(
        row
        for row in compile_run.ledger["compiles"]
        if (row["trace_id"], row["kind"]) == ("0/0", "forward")
    )
    names = {phase["name"] for phase in forward["phases"]}
    assert {"dynamo", "aot_autograd", "inductor"} <= names


# ---- pstats --------------------------------------------------------------------------------------


def test_pstats_total_is_cpu_and_waits(compile_run):
    for row in compile_run.ledger["compiles"]:
        stats = pstats.Stats(str(profile_path(compile_run, row)))
        expected = row["cpu_s"] + (row["wait_s"] or 0) + (row["runnable_s"] or 0)
        # A wait at the edge of a compile is shared out by time: to a sampling period.
        period = 1.1 / compile_run.ledger["frequency_hz"]
        assert stats.total_tt == pytest.approx(expected, rel=0.01, abs=period)


def test_pstats_callers_add_up(compile_run):
    """Per function: what its callers account for is what it has itself, but for the root."""
    for row in compile_run.ledger["compiles"]:
        stats = pstats.Stats(str(profile_path(compile_run, row))).stats
        assert stats
        roots = 0
        for key, (primitive, calls, tottime, cumtime, callers) in stats.items():
            assert 0 <= tottime <= cumtime + 1e-9, key
            assert 0 <= primitive <= calls, key
            for caller, numbers in callers.items():
                assert caller in stats, f"{caller} calls {key} and has no entry"
                assert len(numbers) == 4
            if not callers:
                roots += 1
                continue
            total = sum(numbers[2] for numbers in callers.values())
            # Recursive frames and a root that is called again may be on a stack without a caller.
            assert total <= tottime * 1.001 + 1e-6, key
        assert roots >= 1


def test_pstats_root_has_it_all(compile_run):
    for row in compile_run.ledger["compiles"]:
        stats = pstats.Stats(str(profile_path(compile_run, row)))
        # Time in which it was preempted has no stack.
        without = sum(row[3] for key, row in stats.stats.items() if key[2] == "<no stack>")
        longest = max((row[3] for key, row in stats.stats.items() if key[2] != "<no stack>"), default=0)
        assert longest + without == pytest.approx(stats.total_tt, rel=0.01)


def test_pstats_load_in_every_cpython(compile_run, interpreters):
    paths = [str(profile_path(compile_run, row)) for row in compile_run.ledger["compiles"]]
    program = "import pstats, sys\nfor path in sys.argv[1:]: pstats.Stats(path).print_stats(3)"
    for python in interpreters:
        done = subprocess.run(
            [python.path, "-c", program, *paths], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, f"{python}: {done.stderr}"
        assert done.stdout.count("function calls") == len(paths)


def test_profile_names_what_compiles_do(compile_run):
    """The big functions of a compile, with their cumulative time in sensible order."""
    row = next(r for r in compile_run.ledger["compiles"] if stem(r) == "_compile_inner_0_0")
    stats = pstats.Stats(str(profile_path(compile_run, row))).stats
    cumulative = {}
    for (_, _, name), (_, _, _, cumtime, _) in stats.items():
        cumulative[name] = max(cumulative.get(name, 0), cumtime)
    for name in ("compile_frame", "compile_fx", "call_user_compiler"):
        assert cumulative[name] > 0
    assert cumulative["compile_frame"] >= cumulative["call_user_compiler"]
    assert cumulative["call_user_compiler"] >= cumulative["compile_fx"] * 0.99


# ---- chrome traces -------------------------------------------------------------------------------


def test_chrome_traces_are_well_formed(compile_run):
    traces = [compile_run.directory / "trace.json.gz"]
    traces += sorted(compile_run.directory.glob("compiles/*.trace.json.gz"))
    assert len(traces) == 1 + len(compile_run.ledger["compiles"])
    checker = support.REPO / "tests" / "compat" / "check_chrome_trace.py"
    done = subprocess.run(
        [sys.executable, checker, *traces], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_chrome_trace_shows_the_compiles(compile_run):
    with gzip.open(compile_run.directory / "trace.json.gz", "rt", encoding="utf-8") as file:
        trace = json.load(file)
    slices = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
    names = {event["name"] for event in slices}
    for row in compile_run.ledger["compiles"]:
        assert any(row["trace_id"] in name for name in names), f"no slice for {row['trace_id']}"


# ---- the report, and everything again from the recording -----------------------------------------


def test_report_on_stdout(compile_run):
    """report.txt is what was printed, and profile tables behind it."""
    text = (compile_run.directory / "report.txt").read_text()
    assert compile_run.done.out and text.startswith(compile_run.done.out)
    assert all(line.isprintable() for line in text.splitlines())
    too_wide = [line for line in text.splitlines() if len(line) > 100]
    assert not too_wide
    for row in compile_run.ledger["compiles"]:
        assert re.search(rf"(?<![0-9/]){re.escape(row['trace_id'])}(?![0-9/])", text)
    assert "Overhead" in text


def test_report_can_be_made_again(compile_run, dynprof, tmp_path):
    """From the recording alone, elsewhere."""
    alone = tmp_path / "alone"
    alone.mkdir()
    os.link(compile_run.directory / "recording.dynprof", alone / "recording.dynprof")
    done = dynprof.run("report", alone)
    assert done.rc == 0, done
    assert done.out == compile_run.done.out
    assert sorted(path.name for path in alone.iterdir()) == ["recording.dynprof"]


def export(dynprof, run, path, form, *arguments):
    done = dynprof.run("export", run.directory, "-f", form, "-o", path, *arguments)
    assert done.rc == 0, done
    return path.read_bytes()


def test_profiles_can_be_made_again(compile_run, dynprof, tmp_path):
    for number, row in enumerate(compile_run.ledger["compiles"]):
        if row["kind"] != "forward" or row["attempt"]:
            continue
        again = export(
            dynprof, compile_run, tmp_path / f"{number}.profile", "pstats",
            "--compile", row["trace_id"],
        )
        first = profile_path(compile_run, row)
        if [r["trace_id"] for r in compile_run.ledger["compiles"]].count(row["trace_id"]) == 1:
            assert again == first.read_bytes()


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_twice_is_the_same(compile_run, dynprof, tmp_path, form):
    first = export(dynprof, compile_run, tmp_path / "one", form)
    assert first
    assert first == export(dynprof, compile_run, tmp_path / "two", form)


def test_folded_stacks_count_the_samples(compile_run, dynprof, tmp_path):
    text = export(dynprof, compile_run, tmp_path / "folded", "folded").decode()
    total = 0
    for line in text.splitlines():
        stack, _, count = line.rpartition(" ")
        assert stack and count.isdigit(), line
        total += int(count)
    assert total == compile_run.ledger["samples"]


# ---- on a terminal -------------------------------------------------------------------------------


def test_a_terminal_shows_what_is_being_done(spawn, dynprof, tmp_path):
    target = spawn([sys.executable, "-c", "print('ready', flush=True)\nwhile True: sum(range(99))"])
    target.wait_for("^ready")
    ours, theirs = pty.openpty()
    command = [dynprof.binary, "record", "-p", str(target.pid), "-d", "1s", "-o", tmp_path / "out"]
    with subprocess.Popen(command, stderr=theirs, stdout=subprocess.DEVNULL) as run:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # the end of a terminal that is no longer open
            while more := os.read(ours, 4096):
                shown += more
        assert run.wait(timeout=60) == 0, shown
    os.close(ours)
    lines = re.split(r"[\r\n]+(?:\x1b\[K)?", shown.decode())
    sampled = [i for i, line in enumerate(lines) if re.match(r"[\d.]+ s \| [\d,]+ samples", line)]
    named = [i for i, line in enumerate(lines) if line.startswith("naming the frames of /")]
    captured = [i for i, line in enumerate(lines) if line.startswith("Captured ")]
    assert sampled and named and captured, lines
    assert sampled[-1] < named[0] <= named[-1] < captured[0], lines
    assert max(len(lines[i]) for i in sampled + named) < 80, lines


# ---- the page ------------------------------------------------------------------------------------


def test_the_page_of_a_real_compile(compile_run, tmp_path):
    page = compile_run.directory / "report.html"
    assert page.stat().st_size < 5_000_000
    browser = browsers.Browser(tmp_path)
    try:
        browser.look()
        browser.open(page)
        assert browser.console == [] and browser.requests == [page.resolve().as_uri()]
        ids = browser.evaluate("data.tables[0].rows.map((row) => row.cells[0])")
        assert len(ids) == len(compile_run.ledger["compiles"])
        # The flame graph's time of a compile is the ledger's.
        groups = browser.evaluate("data.flame.groups.map((group) => [group.name, group.cpu])")
        times = dict(reversed(groups))
        for row in compile_run.ledger["compiles"]:
            if row["kind"] == "forward" and row["repeat"] == 1 and row["cpu_s"]:
                label = row["trace_id"] + (f"_{row['attempt']}" if row["attempt"] else "")
                assert abs(times[label] / 1e6 - row["cpu_s"]) < 0.001, label
        summary = browser.evaluate("data.summary.map((line) => line[0])")
        report = (compile_run.directory / "report.txt").read_text()
        assert summary and all(re.search(rf"^  {title} ", report, re.M) for title in summary)
        assert browser.evaluate("document.querySelectorAll('#timeline canvas').length") == 1
    finally:
        browser.close()
