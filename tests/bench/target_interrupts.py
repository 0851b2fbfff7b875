"""What interrupts the target's main thread in a compile, and for how long: nothing attached, perf, dynprof-bpf.

    target_interrupts.py [--backend inductor] [--depth 2] [--repeat 5] [--windows 2] [--way WAY ...]

One process compiles again and again (recompiling.py). The kernel's tracepoints say when an interrupt begins and ends on
that thread: of the local timer and what its timers do (perf_swevent_hrtimer takes a sample, tick_nohz_handler is the
scheduler's tick, hrtimer_wakeup wakes somebody else's thread), of other CPUs (call_function_single, reschedule), and
irq_work, by which a BPF program wakes user space. Printed are the number and the milliseconds a compile, as the range
over the windows. The tracepoints themselves take part of that time, the same in each way. Needs tracefs, and nothing
else on the machine.
"""

import argparse
import collections
import os
import re
import sys
import tempfile
from pathlib import Path

import bench_cost

INSTANCE = Path("/sys/kernel/tracing/instances/dynprof-bench")
VECTORS = ("local_timer", "call_function_single", "call_function", "reschedule", "irq_work")
EVENTS = [
    *(f"irq_vectors/{vector}_{edge}" for vector in VECTORS for edge in ("entry", "exit")),
    *(f"timer/hrtimer_expire_{edge}" for edge in ("entry", "exit")),
]
LINE = re.compile(r"\s(\d+\.\d+): (\w+)_(entry|exit): (.*)")
WAYS = ("nothing", "perf -F 99", "dynprof -F 99")


class Trace:
    """Of one thread."""

    def __init__(self, tid):
        INSTANCE.mkdir()
        (INSTANCE / "buffer_size_kb").write_text("8192")
        (INSTANCE / "trace_clock").write_text("mono")
        for event in EVENTS:
            folder = INSTANCE / "events" / event
            if folder.exists():
                (folder / "filter").write_text(f"common_pid == {tid}")
                (folder / "enable").write_text("1")

    def close(self):
        (INSTANCE / "events" / "enable").write_text("0")
        INSTANCE.rmdir()

    def clear(self):
        (INSTANCE / "trace").write_text("")

    def sums(self):
        """{what: (number, ms)}"""
        number, spent, began = collections.Counter(), collections.Counter(), {}
        with open(INSTANCE / "trace") as lines:
            for line in lines:
                if not (found := LINE.search(line)):
                    continue
                at, what, edge, rest = float(found[1]), found[2], found[3], found[4]
                if edge == "entry":
                    name = re.search(r"function=(\S+)", rest)[1] if what == "hrtimer_expire" else what
                    began[what] = (name, at)
                elif what in began:
                    name, then = began.pop(what)
                    number[name] += 1
                    spent[name] += (at - then) * 1e3
        return {name: (number[name], spent[name]) for name in number}


def measure(target, trace, way, folder, windows, repeat):
    """[{what: (number, ms)} a compile, of each window]"""
    found = []
    for index in range(windows):
        inside = folder / f"{way.replace(' ', '')}-{index}-{target.windows}"
        inside.mkdir()
        run = bench_cost.attach(way, target.process.pid, inside, None, 4)
        try:
            trace.clear()
            target.window()
            sums = trace.sums()
        finally:
            if run:
                run.interrupt()
                run.wait()
        found.append({name: (count / repeat, ms / repeat) for name, (count, ms) in sums.items()})
    return found


def extent(values, digits):
    low, high = (f"{value:,.{digits}f}" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--depth", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=5, help="compiles in a window")
    parser.add_argument("--windows", type=int, default=2)
    parser.add_argument("--way", action="append", dest="ways")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("error: needs root\nhint: sudo make bench-cost")
    with tempfile.TemporaryDirectory() as name:
        target = bench_cost.Target(options.backend, options.depth, f"compile {options.repeat}", Path(name))
        trace = Trace(target.process.pid)
        try:
            target.warm_up()
            for way in options.ways or WAYS:
                found = measure(target, trace, way, Path(name), options.windows, options.repeat)
                print(f"{way}: number and ms a compile")
                for what in sorted({what for sums in found for what in sums}):
                    counts, spent = zip(*(sums.get(what, (0, 0)) for sums in found), strict=True)
                    if max(counts) >= 1:
                        print(f"  {what:24} {extent(counts, 1):20} {extent(spent, 2)}")
        finally:
            trace.close()
            target.process.kill()


if __name__ == "__main__":
    main()
