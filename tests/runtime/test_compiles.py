"""`compiles`: what a process compiled before anyone looked, held against what torch says of itself
(tests/programs/history_job.py), and against look-alikes of older torch on every CPython."""

import json
import os
import re
import signal
import time
from dataclasses import dataclass

import pytest

import support

pytestmark = pytest.mark.pythons(last="3.15")

PROGRAMS = support.REPO / "tests" / "programs"
JOB = PROGRAMS / "history_job.py"
FAKE = PROGRAMS / "fake_torch" / "history.py"
LAYOUTS = ("2.6", "2.9", "2.13")
COLUMNS = 100


def read_json(dynprof, pid, *options):
    done = dynprof.run("compiles", "-p", pid, "--json", *options)
    assert done.rc == 0, done
    found = json.loads(done.out)
    assert found["version"] == 1 and found["pid"] == pid
    return found, done


def metrics_of(row, found):
    """The fields as torch has them: long texts that rows share lie beside the rows."""
    return {
        name: found["texts"][value["text"]]
        if isinstance(value, dict) and value.keys() == {"text"}
        else value
        for name, value in row["metrics"].items()
    }


def by_end(found):
    """Rows in torch's order, those after the compile included."""
    rows = found["compiles"] + found["runtime"]
    return sorted(rows, key=lambda row: (row["metrics"]["end_time_us"], row["trace_id"] or ""))


def table(dynprof, pid, *options):
    done = dynprof.run("compiles", "--pid", pid, *options)
    assert done.rc == 0, done
    lines = done.out.splitlines()
    assert max(map(len, lines)) <= COLUMNS
    return lines, done


# ---- a real job ----------------------------------------------------------------------------------


@dataclass
class History:
    truth: dict
    found: dict
    done: support.Completed
    table: list
    times: list
    clocks: float  # CLOCK_REALTIME - CLOCK_MONOTONIC
    cache: object  # Inductor's


def run_job(folder, cache, python):
    target = support.spawn(
        [python, JOB, folder / "truth.json"],
        env={"TORCHINDUCTOR_CACHE_DIR": str(cache), "TMPDIR": str(folder)},
        timeout=180,
        ready="^ready",
    )
    dynprof = support.Dynprof(folder)
    try:
        found, done = read_json(dynprof, target.pid)
        return History(
            truth=json.loads((folder / "truth.json").read_text()),
            found=found,
            done=done,
            table=table(dynprof, target.pid)[0],
            times=table(dynprof, target.pid, "--times")[0],
            clocks=time.time() - time.monotonic(),
            cache=cache,
        )
    finally:
        dynprof.close()
        target.kill()


@pytest.fixture(scope="module")
def cold(venv_python, tmp_path_factory):
    folder = tmp_path_factory.mktemp("history")
    return run_job(folder, folder / "cache", venv_python)


@pytest.fixture(scope="module")
def warm(cold, venv_python, tmp_path_factory):
    """The same job again: what Inductor compiles comes out of its caches."""
    return run_job(tmp_path_factory.mktemp("history_warm"), cold.cache, venv_python)


@pytest.fixture(scope="module", params=("cold", "warm"))
def history(request):
    return request.getfixturevalue(request.param)


def rows(history, function=None, kind="forward"):
    return [
        row
        for row in history.found["compiles"]
        if row["kind"] == kind and (function is None or row["function"] == function)
    ]


def test_everything_torch_remembers_is_read(history):
    found, truth = history.found, history.truth
    assert found["problems"] == []
    read = [metrics_of(row, found) for row in by_end(found)]
    told = sorted(truth["metrics"], key=lambda m: (m["end_time_us"], m["compile_id"] or ""))
    assert read == told
    assert found["times"] == truth["times"]
    assert list(found["times"]) == list(truth["times"])
    assert found["counters"] == truth["counters"]
    assert found["frames"] == truth["frames"]
    assert found["torch"] == truth["metrics"][0]["pytorch_version"]
    assert not found["rows_dropped"]


def test_rows_have_the_schema_of_the_ledger(history):
    for row in history.found["compiles"]:
        metrics = row["metrics"]
        assert row["source"] == "history"
        assert row["trace_id"] == metrics["compile_id"]
        assert row["process"] == history.found["pid"] and row["thread"] is None
        assert row["exact"] is True and row["complete"] is True
        assert row["cpu_s"] is None and row["wait_s"] is None and row["children_cpu_s"] is None
        assert row["samples"] == 0 and row["generated"] == []
        wall_us = metrics["duration_us"] or metrics["end_time_us"] - metrics["start_time_us"]
        assert row["wall_s"] == pytest.approx(wall_us / 1e6, abs=1e-6)
        begin = metrics["start_time_us"] / 1e6 - history.clocks
        assert row["start_ns"] / 1e9 == pytest.approx(begin, abs=0.05)
        assert row["recompile_reason"] == metrics["recompile_reason"]
        assert row["restart_reasons"] == (metrics["restart_reasons"] or [])
        assert row["cudagraph_skip_reason"] == metrics["cudagraph_skip_reason"]
        if metrics["fail_type"]:
            assert row["failed"] == f"{metrics['fail_type']}: {metrics['fail_reason']}"
        else:
            assert row["failed"] is None
    begins = [row["start_ns"] for row in history.found["compiles"]]
    assert begins == sorted(begins)


def test_phases_are_torchs_times_without_what_is_nested_in_them(history):
    for row in history.found["compiles"]:
        fields = {phase["torch"]: phase for phase in row["phases"]}
        for name, phase in fields.items():
            assert phase["total_s"] == pytest.approx(row["metrics"][name] / 1e6, abs=1e-6)
            assert 0 <= phase["wall_s"] <= phase["total_s"] + 1e-6
            assert phase["cpu_s"] is None and phase["samples"] == 0
        root = (
            fields.get("dynamo_cumulative_compile_time_us")
            or fields.get("backward_cumulative_compile_time_us")
        )
        if root:
            total = sum(phase["wall_s"] for phase in row["phases"])
            assert total == pytest.approx(root["total_s"], rel=0.02, abs=1e-3), row["trace_id"]
    train = rows(history, "train")[0]
    words = {phase["name"] for phase in train["phases"]}
    assert {"dynamo", "aot_autograd", "kernel_compile"} <= words


def test_kinds_and_functions(cold):
    by_id = [(r["kind"], r["trace_id"], r["function"]) for r in cold.found["compiles"]]
    assert by_id[0][0] == "export"
    train = rows(cold, "train")[0]
    # The backward has torch's own row without a name, and gets that of its frame.
    backward = rows(cold, kind="backward")
    assert [(r["trace_id"], r["function"], r["line"]) for r in backward] == [
        (train["trace_id"], "train", train["line"])
    ]
    assert backward[0]["metrics"]["co_name"] is None
    assert backward[0]["file"] == str(JOB)
    # 0/0 was used before and after the reset; no function is guessed for a row without one.
    refused = rows(cold, "limited")[-1]
    assert refused["metrics"]["co_name"] is None
    assert "recompile limit" in refused["failed"]
    assert ("forward", "!0") == by_id[-1][0:1] + (by_id[-1][1][:2],)


def test_recompiles_failures_and_restarts(history):
    recompiled = rows(history, "breaks")[1]
    assert recompiled["trace_id"].endswith("/1") and "rank mismatch" in recompiled["recompile_reason"]
    failed = rows(history, "fails")[0]
    assert failed["failed"].startswith("BackendCompilerFailed: backend='failing_backend'")
    assert failed["attempt"] is None
    assert rows(history, "mutates")[0]["cudagraph_skip_reason"] == "skipping cudagraphs due to mutated inputs"
    assert any(line.strip() == "no CUDA graph: skipping cudagraphs due to mutated inputs" for line in history.table)
    assert rows(history, "breaks")[0]["attempt"] == 1 and rows(history, "train")[0]["attempt"] == 0


def test_graph_breaks_belong_to_the_compiles_they_happened_in(history):
    found, truth = history.found, history.truth
    assert [
        (b["reason"], [[f["file"], f["line"], f["function"]] for f in b["stack"]])
        for b in found["graph_breaks"]
    ] == [(b["reason"], b["stack"]) for b in truth["breaks"]]
    # Its compile is the true one or, where that is not certain, none: a jump on data in a function
    # that was resumed may be of the function or of what resumed it.
    ids = [(b["trace_id"], true["id"]) for b, true in zip(found["graph_breaks"], truth["breaks"], strict=True)]
    assert all(ours in (true, None) for ours, true in ids), ids
    joined = [(row["trace_id"], b) for row in found["compiles"] for b in row["graph_breaks"]]
    assert len(joined) == sum(ours is not None for ours, _ in ids) >= len(ids) // 2, ids
    for trace_id, b in joined:
        assert b["trace_id"] == trace_id
        assert [b["file"], b["line"]] == [b["stack"][-1]["file"], b["stack"][-1]["line"]]
    # Before the reset it broke as well; torch has dropped that.
    assert rows(history, "before_reset")[0]["graph_breaks"] == []
    assert rows(history, "before_reset")[0]["restart_reasons"]


def test_a_backward_out_of_the_cache_is_marked(cold, warm):
    assert rows(cold, kind="backward")
    assert rows(cold, "train")[0]["backward_from_cache"] is None
    assert rows(cold, "train")[0]["cache"]["aot_autograd_misses"] == 1
    assert rows(warm, kind="backward") == []
    assert rows(warm, "train")[0]["backward_from_cache"] is True
    assert rows(warm, "train")[0]["cache"]["aot_autograd_hits"] == 1
    assert rows(warm, "infer")[0]["backward_from_cache"] is False
    assert any("loaded from the cache too" in line for line in warm.table)


def test_the_table(cold):
    assert cold.table[0].startswith("# Process ")
    text = "\n".join(cold.table)
    for row in cold.found["compiles"]:
        label = row["trace_id"] or "-"
        label += f"_{row['attempt']}" if row["attempt"] else ""
        if row["kind"] in ("backward", "export"):
            label = f"{row['kind']} {label}"
        assert re.search(rf"^  {re.escape(label)} .* {row['wall_s']:.2f} ", text, re.M), label
    assert "recompiled: 0/0: tensor 'x' rank mismatch" in text
    assert "graph break at helper history_job.py:83" in text
    assert "failed: BackendCompilerFailed: backend='failing_backend' raised: RuntimeError: no" in text


def test_the_table_of_times_is_torchs(history):
    names, csv = history.truth["times_csv"]
    totals = dict(
        line.rsplit(", ", 1) if ", " in line else line.rsplit(None, 1)
        for line in history.truth["times_total"].splitlines()[2:]
        if not set(line) <= set("- ")
    )
    totals = {name.strip(): total for name, total in totals.items()}
    shown = [line.split(None, 3) for line in history.times[1:]]
    assert len(shown) == len(names)
    for name, values, words in zip(names, csv, shown, strict=True):
        seconds = [float(v) for v in values.split(", ")] if values else []
        if len(name) <= 44 and " " not in name:
            assert words[0] == name
            assert words[1] == str(len(seconds))
            assert float(words[2]) == pytest.approx(float(totals[name]), abs=1.1e-4)
            runtimes = words[3].rstrip("…").split(", ") if len(words) > 3 else []
            for said, true in zip(runtimes[:-1], seconds, strict=False):
                assert float(said) == pytest.approx(true, abs=6e-5)


# ---- look-alikes of other versions ---------------------------------------------------------------


def fake(spawn, interpreter, layout, scenario):
    target = spawn(
        [interpreter.path, FAKE, scenario], env={"FAKE_TORCH_LAYOUT": layout}, ready="^ready"
    )
    text = target.wait_for("^ready(.*)").group(1)
    return target, json.loads(text) if text else None


@pytest.mark.parametrize("layout", LAYOUTS)
def test_older_shapes(dynprof, spawn, interpreter, layout):
    target, truth = fake(spawn, interpreter, layout, "plain")
    found, done = read_json(dynprof, target.pid)
    assert found["problems"] == []
    rows = sorted(found["compiles"] + found["runtime"], key=lambda r: r["metrics"]["start_time_us"])
    assert [metrics_of(row, found) for row in rows] == truth["metrics"]
    assert found["times"] == truth["times"] and found["counters"] == truth["counters"]
    assert found["torch"] == f"{layout}.0+fake"
    breaks = [(b["reason"], b["trace_id"]) for b in found["graph_breaks"]]
    assert breaks == [
        ("twice", "0/0"),
        ("other", "0/0"),
        ("twice", "0/1"),
        ("generic_jump Tensor", "1/0"),
        ("unknown", None),
    ]
    by_id = {(r["kind"], r["trace_id"], r["function"]): r for r in found["compiles"]}
    assert by_id["forward", "0/1", "f"]["phases"] == [
        {"name": name, "wall_s": wall, "cpu_s": None, "samples": 0, "torch": field, "total_s": total}
        for name, wall, field, total in (
            ("dynamo", 0.002, "dynamo_cumulative_compile_time_us", 0.007),
            ("aot_autograd", 0.002, "aot_autograd_cumulative_compile_time_us", 0.005),
            ("inductor", 0.003, "inductor_cumulative_compile_time_us", 0.003),
        )
    ]
    assert by_id["backward", "1/0", "forward"]["wall_s"] == 0.0005
    assert by_id["forward", "2/0", "forward"]["failed"] == "Unsupported: no"
    known = layout != "2.6"  # it does not count what comes out of caches
    cached, inference = by_id["forward", "3/0", "cached"], by_id["forward", "4/0", "inference"]
    assert cached["backward_from_cache"] is (True if known else None)
    assert inference["backward_from_cache"] is (False if known else None)
    assert (cached["cache"] is None) == (not known)
    assert [row["trace_id"] for row in found["runtime"]] == (["4/0"] if known else [])


def test_more_compiles_than_torch_remembers(dynprof, spawn, interpreter):
    target, truth = fake(spawn, interpreter, "2.13", "full")
    found, _ = read_json(dynprof, target.pid)
    assert [row["trace_id"] for row in found["compiles"]] == [f"{i}/0" for i in range(136, 200)]
    assert found["rows_dropped"] is True and found["frames"] == truth["frames"] == 200
    # 200 breaks of one reason and 64 rows with it: which is whose cannot be told.
    assert len(found["graph_breaks"]) == 200
    assert {b["trace_id"] for b in found["graph_breaks"]} == {None}
    lines, _ = table(dynprof, target.pid)
    assert any("there were more before" in line for line in lines)


def test_a_program_that_compiles_all_the_time(dynprof, spawn, interpreter):
    """A row is never made of two, however often the deque drops the oldest while it is read."""
    target, _ = fake(spawn, interpreter, "2.13", "busy")
    time.sleep(0.5)
    seen = 0
    for _ in range(8):
        found, _ = read_json(dynprof, target.pid)
        for row in found["compiles"]:
            n = int(row["trace_id"].split("/")[0])
            values = (row["function"], row["line"], row["metrics"]["duration_us"])
            assert values == (f"f{n}", n, n + 1)
            assert row["metrics"]["field_59"] == 59
            seen += 1
    assert seen > 100
    assert target.alive()


def test_hostile_objects_and_names(dynprof, spawn, interpreter):
    target, _ = fake(spawn, interpreter, "2.9", "hostile")
    found, done = read_json(dynprof, target.pid)
    assert any("are not CompilationMetrics" in problem for problem in found["problems"])
    assert found["counters"]["fine"] == {"n": 2}
    good = [b for b in found["graph_breaks"] if b["reason"] == "good"]
    assert good and good[0]["file"] == "/a\x1b[2J.py"
    times = found["times"]
    assert times["words"] == [0.5] and len(times["long"]) == 2000
    wrong = next(row for row in found["compiles"] if row["trace_id"] == "2/0")
    assert (wrong["line"], wrong["wall_s"], wrong["start_ns"]) == (None, None, None)
    for options in ((), ("--times",)):
        lines, done = table(dynprof, target.pid, *options)
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", done.out + done.err)
    assert target.alive()


def test_records_without_end_come_to_one(dynprof, spawn, interpreters):
    target, _ = fake(spawn, interpreters[-1], "2.13", "endless")
    begin = time.monotonic()
    done = dynprof.run("compiles", "-p", target.pid)
    assert done.rc == 0 and time.monotonic() - begin < 5, done
    assert "parts are missing" in done.err
    assert max(map(len, done.out.splitlines())) <= COLUMNS


def test_names_that_a_version_does_not_have_are_named(dynprof, spawn, interpreter):
    target, _ = fake(spawn, interpreter, "2.13", "renamed")
    found, done = read_json(dynprof, target.pid)
    for name in ("_compilation_metrics", "compilation_time_metrics", "graph_break_reasons", "counters"):
        assert f"torch._dynamo.utils has no {name}" in found["problems"]
        assert f"warning: torch._dynamo.utils has no {name}" in done.err
    assert found["compiles"] == [] and found["times"] == {} and found["frames"] is None


# ---- what cannot be read -------------------------------------------------------------------------


def refused(done, status, *words):
    assert done.rc == status and done.out == "", done
    assert re.search(r"^error: \S", done.err, re.M) and re.search(r"^hint: \S", done.err, re.M), done
    for word in words:
        assert re.search(word, done.err), (word, done.err)


def test_errors(dynprof, spawn, interpreters):
    newest = interpreters[-1].path
    refused(dynprof.run("compiles", "-p", 2**22 - 1), 1, "no process 4194303")
    refused(dynprof.run("compiles", "-p", "self"), 2, "not a process id")
    refused(dynprof.run("compiles", "-p", "1,2"), 2, "one process")
    refused(dynprof.run("compiles"), 2, "--pid")
    refused(dynprof.run("compiles", "-p", 1, "--jsn"), 2, "--json")
    refused(dynprof.run("compilse", "-p", 1), 2, "compiles")
    sleeper = spawn(["sleep", "60"], ready=None)
    time.sleep(0.2)
    refused(dynprof.run("compiles", "-p", sleeper.pid), 1, "sleep")
    python = spawn([newest, "-c", "print('ready'); import time; time.sleep(60)"])
    refused(dynprof.run("compiles", "-p", python.pid), 1, "not imported torch")


def test_torch_without_dynamo(dynprof, spawn, interpreters):
    main = PROGRAMS / "fake_torch" / "main.py"
    target = spawn([interpreters[-1].path, main, "bare"])
    found, done = read_json(dynprof, target.pid)
    assert found["compiles"] == [] and found["problems"] == [] and "warning" not in done.err
    lines, _ = table(dynprof, target.pid)
    assert any("torch.compile was not used" in line for line in lines)


def test_the_target_is_left_alone(dynprof, spawn, interpreters):
    target, _ = fake(spawn, interpreters[-1], "2.13", "plain")
    for _ in range(10):
        read_json(dynprof, target.pid)
        assert "TracerPid:\t0" in open(f"/proc/{target.pid}/status").read()
    target.signal(signal.SIGTERM)
    assert target.wait() == -signal.SIGTERM


@pytest.mark.skipif(os.geteuid() != 0, reason="changes the user")
def test_without_privileges(dynprof, spawn, interpreters):
    target, _ = fake(spawn, interpreters[-1], "2.13", "plain")
    try:
        done = dynprof.run("compiles", "-p", target.pid, user="nobody")
    except PermissionError:
        pytest.skip("the build directory is not readable by others")
    refused(done, 1, "root|CAP_SYS_PTRACE")
