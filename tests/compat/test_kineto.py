"""The checker of Kineto's format itself: it takes what torch.profiler writes, and refuses what is wrong."""

import copy
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import check_chrome_trace  # noqa: E402
import check_kineto  # noqa: E402


def slice_of(category, name, pid, tid, ts, args):
    return {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid,
            "ts": Decimal(ts), "dur": Decimal("2.000"), "args": args}  # fmt: skip


def flow(end, pid, tid, ts):
    event = {"ph": end, "cat": "ac2g", "name": "ac2g", "id": 5, "pid": pid, "tid": tid, "ts": Decimal(ts)}
    return {**event, "bp": "e"} if end == "f" else event


def meta(kind, tid, **args):
    return {"ph": "M", "name": kind, "pid": 0, "tid": tid, "ts": 0, "args": args}


KERNEL = {
    "queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": 5,
    "registers per thread": 32, "shared memory": 0, "blocks per SM": 1, "warps per SM": 8,
    "grid": [1, 1, 1], "block": [256, 1, 1], "est. achieved occupancy %": 12,
}  # fmt: skip
GOOD = {
    "schemaVersion": 1,
    "displayTimeUnit": "ms",
    "baseTimeNanoseconds": 1,
    "deviceProperties": [dict.fromkeys(check_kineto.DEVICE_KEYS, 0)],
    "traceEvents": [
        meta("process_labels", 0, labels="GPU 0"),
        meta("process_sort_index", 0, sort_index=5000000),
        meta("thread_name", 7, name="stream 7 "),
        meta("thread_sort_index", 7, sort_index=7),
        slice_of("cuda_runtime", "cudaLaunchKernel", 9, 9, "1.000", {"cbid": 211, "correlation": 5}),
        flow("s", 9, 9, "1.000"),
        slice_of("kernel", "plain", 0, 7, "4.000", KERNEL),
        flow("f", 0, 7, "4.000"),
    ],
}


def test_a_good_trace_passes():
    assert check_kineto.check_gpu(GOOD) == []


@pytest.mark.parametrize(
    "number, change",
    [
        (0, {"args": {"labels": "CPU"}}),
        (1, {"args": {"sort_index": 0}}),
        (2, {"args": {"name": "stream 7"}}),
        (4, {"name": "launch"}),
        (4, {"args": {"correlation": 5, "cbid": 211}}),
        (5, {"id": 6}),
        (5, {"ts": Decimal("1.001")}),
        (6, {"tid": 8}),
        (6, {"args": {**KERNEL, "grid": [0, 1, 1]}}),
        (6, {"args": {key: KERNEL[key] for key in reversed(KERNEL)}}),
        (7, {"bp": "b"}),
        (7, {"name": "arrow"}),
    ],
)
def test_wrong_traces_are_refused(number, change):
    trace = copy.deepcopy(GOOD)
    trace["traceEvents"][number].update(change)
    assert check_kineto.check_gpu(trace) != []


@pytest.mark.parametrize("number", [5, 7])
def test_an_arrow_with_one_end_is_refused(number):
    trace = copy.deepcopy(GOOD)
    del trace["traceEvents"][number]
    problems = check_kineto.check_gpu(trace) + check_chrome_trace.check(trace)
    assert problems != []


def test_a_trace_of_torch_profiler_passes_the_cpu_part(venv_python, tmp_path):
    path = tmp_path / "profiler.json"
    code = (
        "import sys, torch\n"
        "with torch.profiler.profile() as profiler: torch.ones(8, 8) @ torch.ones(8, 8)\n"
        "profiler.export_chrome_trace(sys.argv[1])\n"
    )
    subprocess.run([venv_python, "-c", code, path], check=True, timeout=120)
    trace = check_chrome_trace.load(path)
    assert any(event.get("cat") == "cpu_op" for event in trace["traceEvents"])
    assert check_kineto.check_cpu(trace) == []
