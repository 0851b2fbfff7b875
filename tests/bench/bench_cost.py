"""What being watched costs a process, by its own CPU clock: `make bench-cost`, or

    bench_cost.py [--work compile|steady] [--backend aot_eager] [--rounds N] [--way WAY ...] [--before PROGRAM]
                  [--settle SECONDS]

One process (tests/bench/recompiling.py) does the same work again and again, in short windows: with nothing attached,
with each way attached, in turn. A window's CPU time (of the quickest compile in it) is compared with the mean of the
two windows beside it in which nothing was attached; what the table gives is the median over the rounds with its 95 %
confidence interval (by resampling). "nothing" is such a window too, and shows what the machine's noise leaves
visible. A profiler attaches before its window and leaves after it: the CPU that attaching costs the target is not in
it.

A way is "perf", "nothing", "dynprof" or "before" (of --before), followed by options: "dynprof -F 999 --passive".
Three more ways each do one thing that a profiler does. "busy N" touches nothing of the target and uses N % of a CPU:
CPUs that share a core slow each other. "stream N" does so by going through 64 MB of its own: CPUs share caches.
"reads N" reads N pages of the target's memory a second, each by a system call.

The other columns: how much larger the kernel's share of the target's CPU time was, in percentage points (what runs on
the target's thread for us is in it; what caches cost is not); how often the target's main thread slept in a window (a
profiler that reads its memory takes the lock of its memory map) and how often it was preempted, more than with nothing
attached; and the CPU the way itself used, in % of the window.
"""

import argparse
import os
import random
import re
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import support  # noqa: E402

WAYS = ("nothing", "perf -F 99", "dynprof -F 99", "perf -F 999", "dynprof -F 999")
RESAMPLES = 2000
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


def attach(way, pid, folder, before, settle_s):
    """A Running profiler that samples by now; None for "nothing"."""
    kind, *options = way.split()
    if kind == "nothing":
        return None
    if kind == "reads":
        return support.Running([sys.executable, "-c", READS, pid, *options], folder)
    if kind in ("busy", "stream"):
        return support.Running([sys.executable, "-c", BUSY if kind == "busy" else STREAM, *options], folder)
    if kind == "perf":
        run = support.Running(
            ["perf", "record", "-g", "-e", "cpu-clock", *options, "-o", folder / "perf.data", "-p", pid], folder
        )
        time.sleep(settle_s)  # it says nothing when it has begun
        return run
    program = before if kind == "before" else support.BINARY
    run = support.Running([program, "record", "--no-svg", *options, "-o", folder / "out", "-p", pid], folder)
    run.wait_for_err(r"(?m)^Sampling ")
    time.sleep(settle_s)
    return run


class Window(NamedTuple):
    cpu_s: float  # of the quickest compile
    kernel_share: float  # of all of the window's CPU time
    slept: int
    preempted: int


class Target:
    def __init__(self, backend, depth, work):
        self.process = support.spawn(
            [support.venv_python().path, HERE / "recompiling.py", "--backend", backend, "--depth", str(depth)],
            timeout=120,
        )
        self.work = work
        self.windows = 0

    def window(self):
        """A Window. CPU seconds of the quickest: what a busy host adds is no cost of ours, and never negative."""
        before = self.switches()
        self.process.send(self.work)
        self.windows += 1
        told = self.process.wait_for(rf"^cpu {self.windows} (\S+) (.*)", timeout=300)
        slept, preempted = (after - then for then, after in zip(before, self.switches(), strict=True))
        each = [float(word) for word in told[2].split()]
        return Window(min(each), float(told[1]) / sum(each), slept, preempted)

    def switches(self):
        """Of the main thread: voluntary and other ones."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return [int(number) for number in re.findall(r"ctxt_switches:\s*(\d+)", text)]


def cpu_seconds(run):
    """A profiler's own, of all of its threads."""
    if not run:
        return 0
    fields = Path(f"/proc/{run.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measured(target, way, folder, before, settle_s):
    """The target's CPU in a window, and the share of a CPU that the profiler used meanwhile."""
    with tempfile.TemporaryDirectory(dir=folder) as inside:
        run = attach(way, target.process.pid, Path(inside), before, settle_s)
        try:
            cpu, began = cpu_seconds(run), time.monotonic()
            window = target.window()
            return window, (cpu_seconds(run) - cpu) / (time.monotonic() - began) * 100
        finally:
            if run:
                run.interrupt()
                run.wait()


def interval(values):
    medians = sorted(statistics.median(random.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return medians[RESAMPLES // 40], medians[-RESAMPLES // 40]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", choices=("compile", "steady"), default="compile")
    parser.add_argument("--backend", default="aot_eager")
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--repeat", type=int, default=6, help="compiles in a window")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--way", action="append")
    parser.add_argument("--before", type=Path)
    parser.add_argument("--settle", type=float, default=1, help="seconds between attaching and the window")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("error: needs root\nhint: sudo make bench-cost")
    ways = options.way or list(WAYS)
    if not shutil.which("perf"):
        print("perf is not installed: it is left out")
        ways = [way for way in ways if not way.startswith("perf")]
    random.seed(0)
    work = f"{'compile' if options.work == 'compile' else 'steps'} {options.repeat}"
    target = Target(options.backend, options.depth, work)
    more = {way: [] for way in ways}
    own = {way: [] for way in ways}
    kernel = {way: [] for way in ways}
    slept = {way: [] for way in ways}
    preempted = {way: [] for way in ways}
    bare = []
    try:
        target.process.send("compile 3")
        target.windows += 1
        target.window()
        with tempfile.TemporaryDirectory() as folder:
            last = target.window()
            for _ in range(options.rounds):
                for way in random.sample(ways, len(ways)):
                    during, used = measured(target, way, folder, options.before, options.settle)
                    after = target.window()
                    more[way].append((during.cpu_s / ((last.cpu_s + after.cpu_s) / 2) - 1) * 100)
                    own[way].append(used)
                    kernel[way].append((during.kernel_share - (last.kernel_share + after.kernel_share) / 2) * 100)
                    slept[way].append(during.slept - (last.slept + after.slept) / 2)
                    preempted[way].append(during.preempted - (last.preempted + after.preempted) / 2)
                    bare.append(after.cpu_s)
                    last = after
        target.process.send("end")
        target.process.wait()
    finally:
        target.process.kill()
    one = "compile" if options.work == "compile" else "window of 100 steps"
    print(f"{options.work}, backend {options.backend}: a {one} takes {statistics.median(bare):.4f} s of CPU, "
          f"{options.rounds} rounds")
    columns = f"{'slept':>6} {'preempted':>9} {'own CPU':>8}"
    print(f"  {'':<24} {'more CPU, 95 % confidence':<28} {'in kernel, points':<28} {columns}")
    for way in ways:
        shares = []
        for column in (more, kernel):
            low, high = interval(column[way])
            shares.append(f"{statistics.median(column[way]):+.2f} ({low:+.2f} ... {high:+.2f})")
        told = [statistics.median(column[way]) for column in (slept, preempted, own)]
        print(f"  {way:<24} {shares[0]:<28} {shares[1]:<28} {told[0]:6.0f} {told[1]:9.0f} {told[2]:6.1f} %", flush=True)


main()
