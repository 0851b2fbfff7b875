"""What being watched costs a process, by its own CPU clock: `make bench-cost`, or

    bench_cost.py [--work compile|steady|serve|load|threads] [--backend aot_eager] [--rounds N] [--way WAY ...]
                  [--before PROGRAM] [--settle SECONDS] [--warm N] [--fresh ROUNDS] [--raw FILE]

A process (tests/bench/recompiling.py) does the same work again and again, in short windows: with nothing attached,
with each way attached, in turn. A window's CPU time (of the quickest compile in it) is compared with the mean of the
two windows beside it in which nothing was attached; what the table gives is the median over the rounds with its 95 %
confidence interval (by resampling). "nothing" is such a window too, and shows what the machine's noise leaves
visible. A new process begins after some rounds, because torch's compiles become slower with its age, by half in 300.
A profiler attaches before its window and leaves after it: the CPU that attaching costs the target is not in it. With
--warm so many windows pass first, which are not measured: a recording removes probes that are hit too often.

With --backend inductor the C++ compiler is tests/bench/cached_cxx.sh: the process starts it as ever, but does not wait
seconds for it. The compiler's CPU time is that of children, which is not counted.

The lines below the table compare each way of dynprof with perf at the same rate, from the same rounds. --raw keeps
every window's values, as JSON.

The works are those of tests/bench/recompiling.py. Lines below the table tell the time by the clock of the quickest in a
window (how much larger it is, that is by how much the throughput is less), of "serve" the latency of its requests, of
"load" the CPU time of the DataLoader's workers.

A way is "perf", "py-spy", "bpftrace", "torch.profiler", "nothing", "dynprof" or "before" (of --before), followed by
options: "dynprof -F 999 --passive", "py-spy -r 99 --nonblocking", "bpftrace 99", "torch.profiler stacks". The process
itself begins torch.profiler before the window; what that does once it has ended is not measured.
Three more ways each do one thing that a profiler does. "busy N" touches nothing of the target and uses N % of a CPU:
CPUs that share a core slow each other. "stream N" does so by going through 64 MB of its own: CPUs share caches.
"reads N" reads N pages of the target's memory a second, each by a system call.

The other columns: how much larger the kernel's share of the target's CPU time was, in percentage points (probes and
switches are in it; the sampling clock's interrupts and what caches cost are not where the kernel accounts by ticks,
CONFIG_TICK_CPU_ACCOUNTING); how often the target's main thread slept in a window (a profiler that reads its memory
takes the lock of its memory map), how often it was preempted, and its page faults, more than with nothing attached;
and the CPU the way itself used, in % of the window. The last table has its own cost before, in and after the window.
"""

import argparse
import json
import os
import random
import re
import shutil
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import support  # noqa: E402
from own_cost import cpu_by_thread, cpu_seconds, page_faults, wait_for_end  # noqa: E402

WORKS = {
    "compile": ("compile", "a compile"),
    "steady": ("steps", "a window of 100 steps"),
    "serve": ("serve", "a second with 50 requests"),
    "load": ("load", "a pass of 200 batches"),
    "threads": ("threads", "a run of 200 threads"),
}
WAYS = ("nothing", "perf -F 99", "dynprof -F 99", "perf -F 999", "dynprof -F 999")
RESAMPLES = 2000
COLUMNS = ("more", "kernel", "slept", "preempted", "faults", "own")
# How much larger they were, in %, where the work has them.
BESIDES = {
    "clock_s": "time by the clock",
    "children_s": "CPU of its children",
    "median_s": "latency, median",
    "slowest_s": "latency, 99th percentile",
}
MODELS = ("busy", "stream", "reads")  # ways that do one thing that a profiler does
BUSY = """
import sys, time
share = float(sys.argv[1]) / 100
while True:
    end = time.perf_counter() + 0.01 * share
    while time.perf_counter() < end: pass
    time.sleep(0.01 * (1 - share))
"""
STREAM = """
import sys, time
share, data = float(sys.argv[1]) / 100, bytearray(64 << 20)
piece, at = 1 << 18, 0
while True:
    end = time.perf_counter() + 0.01 * share
    while time.perf_counter() < end:
        data.count(1, at, at + piece)
        at = (at + piece) % len(data)
    time.sleep(0.01 * (1 - share))
"""
READS = """
import ctypes, random, sys, time
pid, rate = int(sys.argv[1]), int(sys.argv[2])
class Range(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]
read = ctypes.CDLL(None).process_vm_readv
page = ctypes.create_string_buffer(4096)
local = Range(ctypes.addressof(page), 4096)
pages = []
for line in open(f"/proc/{pid}/maps"):
    words = line.split()
    if words[1].startswith("rw") and len(words) == 5:
        low, high = (int(word, 16) for word in words[0].split("-"))
        pages += range(low, min(high, low + (64 << 20)), 4096)
while True:
    for at in random.sample(pages, min(len(pages), rate // 100)):
        remote = Range(at, 4096)
        read(pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
    time.sleep(0.01)
"""

# Its stacks are not printed: bpftrace 0.17 takes three minutes to name those of one window.
BPFTRACE = "profile:hz:%s /pid == %s/ { @[ustack, kstack] = count(); } END { clear(@); }"


def attach(way, pid, folder, before, settle_s):
    """A Running profiler that samples by now; None for "nothing"."""
    kind, *options = way.split()
    if kind == "nothing":
        return None
    if kind == "reads":
        return support.Running([sys.executable, "-c", READS, pid, *options], folder)
    if kind in ("busy", "stream"):
        return support.Running([sys.executable, "-c", BUSY if kind == "busy" else STREAM, *options], folder)
    out, argv = folder / "out", None
    if kind == "perf":
        argv = ["perf", "record", "-g", "-e", "cpu-clock", *options, "-o", out, "-p", pid]
    elif kind == "py-spy":
        argv = [support.VENV / "bin" / "py-spy", "record", *options, "-f", "raw", "-d", 3600, "-o", out, "-p", pid]
    elif kind == "bpftrace":
        argv = ["bpftrace", "-q", "-o", out, "-e", BPFTRACE % (*options, pid)]
    if argv:
        run = support.Running(argv, folder)
        time.sleep(settle_s)  # they say nothing when they have begun
        return run
    program = before if kind == "before" else support.BINARY
    run = support.Running([program, "record", *options, "-o", out, "-p", pid], folder)
    run.wait_for_err(r"(?m)^Sampling ")
    time.sleep(settle_s)
    return run


class Window(NamedTuple):
    cpu_s: float  # of the quickest compile
    each_s: list[float]
    clock_s: float  # of the quickest, by the clock
    kernel_share: float  # of all of the window's CPU time
    slept: int
    preempted: int
    faults: int
    children_s: float  # CPU; 0: it has none
    median_s: float  # latency of requests; 0: there are none
    slowest_s: float  # ... the 99th percentile


class Target:
    def __init__(self, backend, depth, work, cxx_dir=None):
        """`cxx_dir`: a directory for what the C++ compiler makes; each source is compiled once for all processes."""
        compiler = {"CXX": str(HERE / "cached_cxx.sh"), "CACHED_CXX_DIR": str(cxx_dir)} if cxx_dir else {}
        self.process = support.spawn(
            [support.venv_python().path, HERE / "recompiling.py", "--backend", backend, "--depth", str(depth)],
            timeout=120,
            env=compiler,
        )
        self.work = work
        self.windows = 0

    def warm_up(self):
        self.process.send("compile 3")
        self.windows += 1
        self.window()

    def window(self):
        """A Window. CPU seconds of the quickest: what a busy host adds is no cost of ours, and never negative."""
        before, children = self.counts(), self.children_s()
        self.process.send(self.work)
        self.windows += 1
        told = self.process.wait_for(rf"^cpu {self.windows} (\S+) (.*)", timeout=300)
        counts = (after - then for then, after in zip(before, self.counts(), strict=True))
        each = [float(word) for word in told[2].split()]
        latency = re.search(rf"^latency {self.windows} (\S+) (\S+)", self.process.text, re.MULTILINE)
        latencies = [float(word) for word in latency.groups()] if latency else [0, 0]
        children = self.children_s() - children if children else 0
        clock = re.search(rf"^clock {self.windows} (.*)", self.process.text, re.MULTILINE)
        clock_s = min(float(word) for word in clock[1].split())
        kernel_share = float(told[1]) / sum(each)
        return Window(min(each), each, clock_s, kernel_share, *counts, children, *latencies)

    def children_s(self):
        pids = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return sum(cpu_seconds(pid) for pid in pids)

    def counts(self):
        """Switches of the main thread, voluntary and other ones; page faults of all threads."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        switches = [int(number) for number in re.findall(r"ctxt_switches:\s*(\d+)", text)]
        return [*switches, page_faults(self.process.pid)]


class OwnCost(NamedTuple):
    """Of a profiler that was attached for one window."""

    attach_s: float  # CPU until the window
    during: float  # % of a CPU in the window
    end_s: float  # CPU after it
    peak_mb: float
    written_mb: float
    threads: dict[str, float]  # % of a CPU in the window


def measured(target, way, folder, options):
    """A Window with this way attached, and its OwnCost; None for "nothing"."""
    if way.startswith("torch.profiler"):
        target.process.send(" ".join(["profiler on", *way.split()[1:]]))
        time.sleep(options.settle)
        window = target.window()
        target.process.send("profiler off")
        return window, None
    with tempfile.TemporaryDirectory(dir=folder) as inside:
        run = attach(way, target.process.pid, Path(inside), options.before, options.settle)
        if not run:
            return target.window(), None
        try:
            for _ in range(options.warm):
                target.window()
            threads, cpu, began = cpu_by_thread(run.pid), cpu_seconds(run.pid), time.monotonic()
            window = target.window()
            took, now, now_cpu = time.monotonic() - began, cpu_by_thread(run.pid), cpu_seconds(run.pid)
            run.interrupt()
            if way.split()[0] in MODELS:
                run.wait()
                return window, OwnCost(cpu, (now_cpu - cpu) / took * 100, 0, 0, 0, {})
            ended = wait_for_end(run, -signal.SIGINT if way.startswith("perf") else 0)  # perf sends it to itself
            written = sum(file.stat().st_size for file in Path(inside).rglob("*") if file.is_file())
            shares = {name: (used - threads.get(name, 0)) / took * 100 for name, used in now.items()}
            during = (now_cpu - cpu) / took * 100
            shares["threads that have ended"] = during - sum(shares.values())
            return window, OwnCost(cpu, during, ended.cpu_s - now_cpu, ended.peak_mb, written / 1e6, shares)
        finally:
            run.kill()


def measure(target, ways, rounds, options, columns, windows):
    """Rounds with one process, into the columns, by way; `windows`: (way, before it, in it, after it, OwnCost)."""
    try:
        target.warm_up()
        with tempfile.TemporaryDirectory() as folder:
            last = target.window()
            for _ in range(rounds):
                for way in random.sample(ways, len(ways)):
                    during, own = measured(target, way, folder, options)
                    after = target.window()
                    columns["more"][way].append((during.cpu_s / ((last.cpu_s + after.cpu_s) / 2) - 1) * 100)
                    for name in ("kernel_share", "slept", "preempted", "faults"):
                        value, beside = getattr(during, name), (getattr(last, name) + getattr(after, name)) / 2
                        scale = 100 if name == "kernel_share" else 1
                        columns["kernel" if scale == 100 else name][way].append((value - beside) * scale)
                    for name in BESIDES:
                        value, beside = getattr(during, name), (getattr(last, name) + getattr(after, name)) / 2
                        if beside:
                            columns[name][way].append((value / beside - 1) * 100)
                    columns["own"][way].append(own.during if own else 0)
                    windows.append((way, last, during, after, own))
                    last = after
        target.process.send("end")
        target.process.wait()
    finally:
        target.process.kill()


def interval(values):
    medians = sorted(statistics.median(random.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return medians[RESAMPLES // 40], medians[-RESAMPLES // 40]


def difference(ours, theirs):
    """Of two medians, with its 95 % confidence interval."""
    resampled = sorted(
        statistics.median(random.choices(ours, k=len(ours))) - statistics.median(random.choices(theirs, k=len(theirs)))
        for _ in range(RESAMPLES)
    )
    between = statistics.median(ours) - statistics.median(theirs)
    return between, resampled[RESAMPLES // 40], resampled[-RESAMPLES // 40]


def show_own_cost(ways, windows):
    """By way: medians of each column, and the shares of threads that are 0.1 % of a CPU or more."""
    print(f"  {'own cost':<24} {'CPU until the window':>20} {'in it':>7} {'after it':>9} {'peak':>7} {'written':>9}")
    for way in ways:
        costs = [own for name, *_, own in windows if name == way and own]
        if not costs:
            continue
        attach_s, during, end_s, peak_mb, written_mb = (
            statistics.median(getattr(own, name) for own in costs) for name in OwnCost._fields[:5]
        )
        print(f"  {way:<24} {attach_s:18.2f} s {during:5.1f} % {end_s:7.2f} s {peak_mb:4.0f} MB {written_mb:6.1f} MB")
        names = {name for own in costs for name in own.threads}
        shares = {name: statistics.median(own.threads.get(name, 0) for own in costs) for name in names}
        told = [f"{name} {share:.1f} %" for name, share in shares.items() if share >= 0.1]
        if len(told) > 1:
            print(f"  {'':<24} threads: {', '.join(told)}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", choices=tuple(WORKS), default="compile")
    parser.add_argument("--backend", default="aot_eager")
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--repeat", type=int, default=6, help="compiles in a window")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--fresh", type=int, default=4, help="rounds with one process: torch becomes slower with age")
    parser.add_argument("--way", action="append")
    parser.add_argument("--before", type=Path)
    parser.add_argument("--settle", type=float, default=1, help="seconds between attaching and the window")
    parser.add_argument("--warm", type=int, default=0, help="windows between attaching and the one that is measured")
    parser.add_argument("--raw", type=Path)
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("error: needs root\nhint: sudo make bench-cost")
    ways = options.way or list(WAYS)
    for tool in ("perf", "bpftrace"):
        if any(way.startswith(tool) for way in ways) and not shutil.which(tool):
            print(f"{tool} is not installed: it is left out")
            ways = [way for way in ways if not way.startswith(tool)]
    random.seed(0)
    word, one = WORKS[options.work]
    work = f"{word} {options.repeat}"
    columns = {name: {way: [] for way in ways} for name in (*COLUMNS, *BESIDES)}
    windows = []
    try:
        with tempfile.TemporaryDirectory() as cxx_dir:
            for first in range(0, options.rounds, options.fresh):
                rounds = min(options.fresh, options.rounds - first)
                target = Target(options.backend, options.depth, work, cxx_dir)
                measure(target, ways, rounds, options, columns, windows)
    except KeyboardInterrupt:
        print("interrupted: what was measured until then")
    more, kernel = columns["more"], columns["kernel"]
    bare = [after.cpu_s for *_, after, _ in windows]
    rounds = min(len(values) for values in more.values())
    if not rounds:
        sys.exit("error: no round was measured")
    print(
        f"{options.work}, backend {options.backend}: {one} takes {statistics.median(bare):.4f} s of CPU, "
        f"{rounds} rounds"
    )
    heads = f"{'slept':>6} {'preempted':>9} {'faults':>7} {'own CPU':>8}"
    print(f"  {'':<24} {'more CPU, 95 % confidence':<28} {'in kernel, points':<28} {heads}")
    for way in ways:
        shares = []
        for column in (more, kernel):
            low, high = interval(column[way])
            shares.append(f"{statistics.median(column[way]):+.2f} ({low:+.2f} ... {high:+.2f})")
        told = [statistics.median(column[way]) for column in (columns[name] for name in COLUMNS[2:])]
        counts = f"{told[0]:6.0f} {told[1]:9.0f} {told[2]:7.0f} {told[3]:6.1f} %"
        print(f"  {way:<24} {shares[0]:<28} {shares[1]:<28} {counts}")
    for name, title in BESIDES.items():
        for way, values in columns[name].items():
            if values:
                low, high = interval(values)
                print(f"  {title}, {way}: {statistics.median(values):+.2f} % ({low:+.2f} ... {high:+.2f})")
    for way in ways:
        peer = way.replace("dynprof", "perf", 1)
        if peer != way and peer in ways:
            told = [difference(column[way], column[peer]) for column in (more, kernel)]
            shares = [f"{median:+.2f} ({low:+.2f} ... {high:+.2f})" for median, low, high in told]
            print(f"  {way} beside {peer}: {shares[0]} %; in the kernel {shares[1]} points")
    show_own_cost(ways, windows)
    if options.raw:
        options.raw.write_text(json.dumps({"windows": windows, "columns": columns}))


if __name__ == "__main__":
    main()
