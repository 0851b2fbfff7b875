"""GPU work as a recording has it (tests/tools/gpu_dump.cpp), and the Python job that makes it."""

import json
import subprocess
import sys
from collections import Counter, namedtuple

import gpu_library
import samples
import support

sys.path.insert(0, str(support.REPO / "tests" / "compat"))

import check_chrome_trace  # noqa: E402
import check_kineto  # noqa: E402

JOB = support.REPO / "tests" / "programs" / "gpu_job.py"

Call = namedtuple(
    "Call",
    "pid tid correlation call name begin end announced bare trace_id backward compiling stack works"
    " in_run",
)
Item = namedtuple(
    "Item", "kind pid correlation device stream start end name graph graph_node call"
)


class GpuDump:
    def __init__(self, directory):
        recording = directory / "recording.dynprof"
        done = subprocess.run(
            [support.BUILD / "tests" / "gpu_dump", recording], capture_output=True, check=True
        )
        text = json.loads(done.stdout)
        self.calls = [Call(*row) for row in text["calls"]]
        self.items = [Item(*row) for row in text["items"]]
        self.devices, self.orphans = text["devices"], text["orphans"]
        self.recording = samples.Dump(recording)

    work = property(lambda self: [item for item in self.items if item.kind != gpu_library.SYNC])

    def functions(self, call):
        """The call's Python stack, root first."""
        return [frame.name for frame in self.recording.stack(call.stack)]

    def lost(self):
        return {
            name: count
            for name, count in self.recording.trailer["counters"].items()
            if name.startswith("gpu_") or name in ("malformed_event", "ring_full")
        }


def start_job(spawn, python, *arguments, library=True, env=None):
    environment = {"CUDA_INJECTION64_PATH": str(gpu_library.LIBRARY) if library else "none"}
    environment.update(env or {})
    return spawn(
        [python, JOB, gpu_library.FAKES, *arguments], timeout=120, env=environment
    )


def tell(job, line, timeout=120):
    """Says it, and waits for the answer."""
    job.told = getattr(job, "told", 0) + 1
    job.send(line)
    job.wait_for(rf"^did {job.told} {line.split()[0]}$", timeout)


def truth_of(job, folder):
    """The driver's own log."""
    path = folder / "driver.log"
    tell(job, f"log {path}")
    return gpu_library.read_truth(path)


def record(dynprof, directory, job, *arguments):
    """`record`, once it samples and the library is on."""
    run = samples.start_recording(dynprof, directory, "--pid", job.pid, *arguments, hertz=99)
    if "off" not in arguments:
        run.wait_for_err(r"GPU work of process \d+ is traced", timeout=30)
    return run


def stop(run):
    run.interrupt()
    done = run.wait()
    assert done.rc == 0, done
    return done


def assert_same(dump, truth, sampled=False):
    """Every call and all work of the driver's own log, once, and nothing else; all joined. Not `sampled`: each call has
    its stack."""
    assert {c.correlation: (c.call >> 24, c.call & 0xFFFFFF, c.tid) for c in dump.calls} == (
        truth.calls
    )
    assert len(dump.calls) == len(truth.calls)
    told = Counter(
        (i.kind, i.correlation, i.stream, i.start, i.end, i.graph, i.graph_node)
        for i in dump.items
    )
    real = Counter(
        (w.kind, w.correlation, w.stream, w.start, w.end, w.graph, w.graph_node)
        for w in truth.work
    )
    assert told == real
    assert dump.orphans == 0
    for item in dump.work:
        assert dump.calls[item.call].correlation == item.correlation
    assert all((sampled or call.announced) and call.end >= call.begin for call in dump.calls)
    assert dump.lost() == {}


def check_trace(directory):
    trace = check_chrome_trace.load(directory / "trace.json.gz")
    assert check_chrome_trace.check(trace) == []
    assert check_kineto.check_gpu(trace) == []
    return trace
