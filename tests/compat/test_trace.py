"""Timelines as viewers read them: chrome traces, speedscope files and perf script text, written by
tests/tools/fake_trace.cpp from made-up recordings. And the checker itself: it must refuse traces
that are wrong."""

import copy
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from xml.etree import ElementTree

import pytest

import support

sys.path.insert(0, str(Path(__file__).parent))

import check_chrome_trace  # noqa: E402

FAKE_TRACE = support.BUILD / "tests" / "fake_trace"


def write(scenario, folder):
    assert FAKE_TRACE.exists(), f"{FAKE_TRACE} does not exist: run make test-binaries"
    subprocess.run([FAKE_TRACE, scenario, folder], check=True, timeout=120)
    return folder


@pytest.fixture(scope="module", params=["training", "hostile", "empty"])
def outputs(request, tmp_path_factory):
    return write(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def training(tmp_path_factory):
    return write("training", tmp_path_factory.mktemp("training"))


# ---- chrome --------------------------------------------------------------------------------------


def test_every_trace_passes_the_checker(outputs):
    traces = [outputs / "trace.json", outputs / "trace.json.gz", *outputs.glob("compiles/*.json.gz")]
    for path in traces:
        assert check_chrome_trace.check_file(path) == [], path


def test_compressed_and_plain_are_the_same(outputs):
    packed = gzip.decompress((outputs / "trace.json.gz").read_bytes())
    assert packed == (outputs / "trace.json").read_bytes()


def test_each_compile_has_its_own_file(training):
    assert sorted(p.name for p in (training / "compiles").iterdir()) == [
        "_compile_inner_0_0.trace.json.gz",
        "_compile_inner_0_1.trace.json.gz",
        "_compile_inner_1_0.trace.json.gz",
        "_compile_inner_1_0_1.trace.json.gz",
        "compile_backward_1_0.trace.json.gz",
    ]


def test_files_are_the_owners_alone(training):
    for path in training.rglob("*.*"):
        if path.is_file():
            assert path.stat().st_mode & 0o777 == 0o600, path


def test_nothing_is_overwritten(training):
    before = (training / "trace.json").read_bytes()
    again = subprocess.run([FAKE_TRACE, "hostile", training], capture_output=True, text=True,
                           timeout=120, check=False)
    assert again.returncode == 1
    assert (training / "trace.json").read_bytes() == before


def test_time_on_the_rows_is_the_time_sampled(training):
    """Each sample is one period of its thread: the outermost slices add up to the samples."""
    trace = check_chrome_trace.load(training / "trace.json")
    period = Decimal(trace["dynprof"]["sampling_period_ns"]) / 1000
    text = (training / "perf.txt").read_text()
    samples = len(re.findall(r"^\S.*:$", text, re.MULTILINE))
    rows = {}
    for event in trace["traceEvents"]:
        if event["ph"] == "X" and event["tid"] < 1_000_000_000:
            rows.setdefault(event["tid"], []).append((event["ts"], event["ts"] + event["dur"]))
    total = Decimal(0)
    for slices in rows.values():
        end = Decimal(-1)
        for begin, stop in sorted(slices):
            if stop > end:
                total += stop - max(begin, end)
                end = stop
    assert total == samples * period


# ---- the checker ---------------------------------------------------------------------------------


def slices_of(trace):
    return [e for e in trace["traceEvents"] if e["ph"] == "X"]


def overlap(trace):
    """Moves the end of a child past its parent's."""
    child = next(e for e in slices_of(trace) if e["name"] == "step")
    child["dur"] += Decimal("30000.000")


def begin_together(trace):
    child = next(e for e in slices_of(trace) if e["name"] == "main")
    parent = min((e for e in slices_of(trace) if e["name"] == "<module> train.py"),
                 key=lambda e: abs(e["ts"] - child["ts"]))
    child["dur"] += child["ts"] - parent["ts"]
    child["ts"] = parent["ts"]


def thread_without_name(trace):
    trace["traceEvents"] = [e for e in trace["traceEvents"]
                            if e["name"] != "thread_name" or e["tid"] != 100]


def thread_without_sort_index(trace):
    trace["traceEvents"] = [e for e in trace["traceEvents"] if e["name"] != "thread_sort_index"]


def process_without_name(trace):
    trace["traceEvents"] = [e for e in trace["traceEvents"] if e["name"] != "process_name"]


def metadata_late(trace):
    trace["traceEvents"].append(trace["traceEvents"].pop(0))


def metadata_twice(trace):
    trace["traceEvents"].insert(0, copy.deepcopy(trace["traceEvents"][0]))


def two_decimals(trace):
    event = slices_of(trace)[3]
    event["ts"] = event["ts"].quantize(Decimal("0.01"))


def whole_number(trace):
    slices_of(trace)[3]["dur"] = 10000


def negative_time(trace):
    slices_of(trace)[0]["ts"] = Decimal("-1.000")


def no_length(trace):
    slices_of(trace)[0]["dur"] = Decimal("0.000")


def no_name(trace):
    slices_of(trace)[0]["name"] = ""


def no_time_base(trace):
    del trace["baseTimeNanoseconds"]


def stray_begin(trace):
    slices_of(trace)[0]["ph"] = "B"


def half_a_flow(trace):
    event = slices_of(trace)[0]
    trace["traceEvents"].append({"ph": "s", "id": 1, "cat": "ac2g", "name": "ac2g",
                                 "pid": event["pid"], "tid": event["tid"], "ts": event["ts"]})


@pytest.mark.parametrize(
    "mutation, complaint",
    [
        (overlap, "overlaps"),
        (begin_together, "begins together with"),
        (thread_without_name, "has no thread_name"),
        (thread_without_sort_index, "has no thread_sort_index"),
        (process_without_name, "has no process_name"),
        (metadata_late, "metadata after other events"),
        (metadata_twice, "a second time"),
        (two_decimals, "3 decimals"),
        (whole_number, "3 decimals"),
        (negative_time, "3 decimals"),
        (no_length, "without length"),
        (no_name, "without a name"),
        (no_time_base, "baseTimeNanoseconds"),
        (stray_begin, "unexpected ph"),
        (half_a_flow, "has only s"),
    ],
    ids=lambda value: value.__name__ if callable(value) else None,
)
def test_the_checker_refuses(training, mutation, complaint):
    trace = check_chrome_trace.load(training / "trace.json")
    assert check_chrome_trace.check(trace) == []
    mutation(trace)
    problems = check_chrome_trace.check(trace)
    assert any(complaint in problem for problem in problems), problems


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: raw[:-20],
        lambda raw: raw.replace(b"python3", b"pyth\xff3", 1),
        lambda raw: raw.replace(b'"ts":0', b'"ts":NaN', 1),
        lambda raw: raw.replace(b'"ph":"M"', b'"ph":"M","ph":"M"', 1),
        lambda raw: b"[" + raw + b"]",
        lambda raw: b"",
    ],
    ids=["cut", "not-utf8", "nan", "key-twice", "array-form", "nothing"],
)
def test_the_checker_refuses_damaged_files(training, tmp_path, damage):
    raw = (training / "trace.json").read_bytes()
    damaged = damage(raw)
    assert damaged != raw
    path = tmp_path / "damaged.json"
    path.write_bytes(damaged)
    done = subprocess.run([sys.executable, check_chrome_trace.__file__, path], text=True,
                          capture_output=True, timeout=60, check=False)
    assert done.returncode == 1 and str(path) in done.stdout


# ---- speedscope ----------------------------------------------------------------------------------


def check_speedscope(file):
    """What speedscope's own file-format-schema.json demands of a sampled profile."""
    assert file["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    assert set(file) <= {"$schema", "exporter", "name", "activeProfileIndex", "shared", "profiles"}
    frames = file["shared"]["frames"]
    for frame in frames:
        assert set(frame) <= {"name", "file", "line", "col"}
        assert isinstance(frame["name"], str) and frame["name"]
        assert isinstance(frame.get("line", 1), int)
    for profile in file["profiles"]:
        assert set(profile) == {
            "type", "name", "unit", "startValue", "endValue", "samples", "weights"}
        assert profile["type"] == "sampled"
        assert profile["unit"] in {"none", "nanoseconds", "microseconds", "milliseconds",
                                   "seconds", "bytes"}
        assert len(profile["samples"]) == len(profile["weights"])
        assert all(weight > 0 for weight in profile["weights"])
        assert abs(sum(profile["weights"]) - (profile["endValue"] - profile["startValue"])) < 1e-6
        for stack in profile["samples"]:
            assert all(isinstance(index, int) and 0 <= index < len(frames) for index in stack)
    if file["profiles"]:
        assert 0 <= file["activeProfileIndex"] < len(file["profiles"])


def test_speedscope(outputs):
    check_speedscope(json.loads((outputs / "speedscope.json").read_text("utf-8")))


def test_speedscope_check_can_fail(training):
    file = json.loads((training / "speedscope.json").read_text("utf-8"))
    file["profiles"][0]["samples"][0].append(len(file["shared"]["frames"]))
    with pytest.raises(AssertionError):
        check_speedscope(file)


# ---- perf script ---------------------------------------------------------------------------------

# As stackcollapse-perf.pl, speedscope and Firefox Profiler match it.
PERF_HEAD = re.compile(r"^(\S.*?)\s+(\d+)/(\d+)\s+(\d+\.\d{6}):\s+(\d+)\s+(\S+):\s*$")
PERF_FRAME = re.compile(r"^\t\s*([0-9a-f]+)\s(.+) \((.*)\)$")


def test_perf_script_lines(training):
    heads = frames = 0
    for line in (training / "perf.txt").read_text("utf-8").splitlines():
        if not line:
            continue
        if line.startswith("\t"):
            assert PERF_FRAME.match(line), line
            frames += 1
        else:
            assert PERF_HEAD.match(line), line
            heads += 1
    assert heads > 50 and frames > 3 * heads


def test_gprof2dot_reads_perf_script(training, venv_python):
    done = subprocess.run([venv_python, "-m", "gprof2dot", "-f", "perf", training / "perf.txt"],
                          capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("digraph")
    for function in ("GraphLowering.run", "_compile", "step"):
        assert function in done.stdout


# ---- export --------------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", ["training", "hostile", "empty"])
def test_svg_fits_a_screen(tmp_path, scenario):
    """Drawn by Graphviz' dot, which Debian brings."""
    assert shutil.which("dot"), "no dot: apt install graphviz"
    out = tmp_path / "graph.svg"
    subprocess.run([FAKE_TRACE, scenario, "svg", out], check=True, timeout=120)
    text = out.read_text("utf-8")
    picture = ElementTree.fromstring(text)
    assert float(picture.get("width").removesuffix("pt")) <= 18 * 72 + 20
    assert float(picture.get("height").removesuffix("pt")) <= 10 * 72 + 20
    if scenario != "training":
        return
    assert "<svg" in text and text.rstrip().endswith("</svg>")
    for function in ("GraphLowering.run", "_compile", "step"):
        assert function in text or function.rpartition(".")[2] in text


@pytest.mark.parametrize("name", ["pstats", "folded", "json", "speedscope", "perf-script"])
def test_export_to_stdout_and_compressed(tmp_path, name):
    piped = subprocess.run([FAKE_TRACE, "training", name, "-"], check=True, capture_output=True,
                           timeout=120).stdout
    packed = tmp_path / "out.gz"
    subprocess.run([FAKE_TRACE, "training", name, packed], check=True, timeout=120)
    assert len(piped) > 100 and gzip.decompress(packed.read_bytes()) == piped


def test_export_names_the_formats_there_are(tmp_path):
    done = subprocess.run([FAKE_TRACE, "training", "nonsense", tmp_path / "x"], timeout=120,
                          capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "nonsense" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_closed_pipe_is_an_error_not_a_crash():
    read, write_end = os.pipe()
    os.close(read)
    done = subprocess.run([FAKE_TRACE, "training", "chrome", "-"], stdout=write_end, timeout=120,
                          stderr=subprocess.PIPE, text=True, check=False,
                          restore_signals=False)  # SIGPIPE stays ignored, as python has it
    os.close(write_end)
    assert done.returncode == 1 and "Broken pipe" in done.stderr
