"""A recording as the tests see it: tests/tools/sample_dump.cpp's JSON with stacks put together."""

import json
import subprocess
from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass

import support

TRUNCATED, FRAME_FAULT, MARKERS_CUT, NO_PYTHON, NATIVE_CUT, UNMERGED = 1, 2, 4, 8, 16, 32
PYTHON_FRAME, NATIVE_FRAME, KERNEL_FRAME = 0, 1, 2


@dataclass(frozen=True)
class Frame:
    function: str
    file: str
    line: int
    name: str
    kind: int
    unreadable: str | None
    offset: int = 0  # native: in its file
    source: str = ""  # native: the source file of `line`
    inlined: bool = False
    declared: int = 0  # native: the line its function is declared at


@dataclass(frozen=True)
class Sample:
    time_ns: int
    pid: int
    tid: int
    stack: int
    compile: int  # index into Dump.compiles, -1: none
    phase: str
    flags: int
    markers: int
    context: int  # index into Dump.contexts
    cpu_ns: int  # what it stands for


@dataclass(frozen=True)
class Edge:
    time_ns: int
    pid: int
    tid: int
    kind: int
    name: str
    depth: int
    context: int
    function: str
    cpu_ns: int  # the thread's CPU clock, 0: not known


@dataclass(frozen=True)
class Wait:
    begin_ns: int
    span_ns: int
    length_ns: int
    runnable_ns: int
    cpu_ns: int
    pid: int
    tid: int
    stack: int
    kind: str
    count: int
    flags: int
    compile: int
    context: int

    @property
    def end_ns(self):
        return self.begin_ns + self.span_ns


WAIT_AT_ATTACH, WAIT_AT_END = 1, 2
PHASE_BEGIN, PHASE_END, REGION_BEGIN, REGION_END, INLINE_BEGIN, INLINE_END = 1, 2, 3, 4, 5, 6
WATCH_BEGIN, WATCH_END = 7, 8


class Dump:
    def __init__(self, path):
        tool = support.BUILD / "tests" / "sample_dump"
        done = subprocess.run([tool, path], capture_output=True, timeout=300)
        assert done.returncode == 0, done.stderr.decode("utf-8", "replace")
        text = json.loads(done.stdout)
        self.meta, self.trailer = text["meta"], text["trailer"]
        self.complete, self.damage = text["complete"], text["damage"]
        self.processes, self.compiles = text["processes"], text["compiles"]
        self.frames = [Frame(*row) for row in text["frames"]]
        self.samples = [Sample(*row) for row in text["samples"]]
        self.contexts, self.facts = text["contexts"], text["facts"]
        self.edges = [Edge(*row) for row in text["edges"]]
        self.waits = [Wait(*row) for row in text.get("waits", [])]
        self.objects = text["objects"]
        self._nodes = text["stacks"]
        self._stacks = {0: ()}

    def stack(self, number):
        """The stack's Python frames, root first."""
        pending = []
        while number not in self._stacks:
            pending.append(number)
            number = self._nodes[number][0]
        for node in reversed(pending):
            caller, frame = self._nodes[node]
            frames = self._stacks[caller]
            if self.frames[frame].kind == PYTHON_FRAME:
                frames += (self.frames[frame],)
            self._stacks[node] = frames
        return self._stacks[pending[0] if pending else number]

    def whole_stack(self, number, inlined=False):
        """All frames, native and kernel ones too, innermost first; inlined ones if wanted."""
        frames = []
        while number:
            number, frame = self._nodes[number]
            if inlined or not self.frames[frame].inlined:
                frames.append(self.frames[frame])
        return frames

    def counter(self, name):
        return self.trailer["counters"].get(name, 0)

    def off_cpu_around_us(self, tid, time_ns):
        """How long a thread was off the CPU next to its edge at this time. Torch reads its clock a moment
        before or after its probe, and a busy machine may run something else in between: an error that is
        not ours, of 10 ms at most on either side."""
        edges = [edge for edge in self.edges if edge.tid == tid and edge.cpu_ns]
        at = bisect_left(edges, time_ns, key=lambda edge: edge.time_ns)
        total = 0
        for one, next_ in zip(edges[max(at - 1, 0) : at + 2], edges[max(at, 1) : at + 2], strict=False):
            off = (next_.time_ns - one.time_ns) - (next_.cpu_ns - one.cpu_ns)
            total += min(max(off, 0), 10_000_000)
        return total / 1e3

    def of_pid(self, pid):
        return [sample for sample in self.samples if sample.pid == pid]

    def functions(self, pid):
        """{function: samples with it on the stack} of one process."""
        counts = defaultdict(int)
        for sample in self.of_pid(pid):
            for function in {frame.function for frame in self.stack(sample.stack)}:
                counts[function] += 1
        return counts


class ByThread:
    """Samples by thread and time."""

    def __init__(self, samples):
        threads = defaultdict(list)
        for sample in samples:
            threads[sample.tid].append(sample)
        self._threads = {}
        for tid, list_ in threads.items():
            list_.sort(key=lambda sample: sample.time_ns)
            self._threads[tid] = ([sample.time_ns for sample in list_], list_)

    def between(self, tid, begin, end):
        times, samples = self._threads.get(tid, ([], []))
        return samples[bisect_left(times, begin) : bisect_right(times, end)]


def start_recording(dynprof, directory, *arguments, hertz=999):
    """`dynprof-bpf record ...`, once it samples."""
    run = dynprof.start("record", "-F", hertz, "-o", directory, *arguments)
    wait_until_sampling(run)
    return run


def wait_until_sampling(run):
    """It says so when everything is attached."""
    run.wait_for_err(r"(?m)^Sampling ", timeout=60)
