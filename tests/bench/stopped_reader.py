"""Which part of the cost is dynprof-bpf's own process: its reads of the target's memory, and the caches that it uses.

    stopped_reader.py [--backend inductor] [--depth 2] [--repeat 1] [--pairs 150] [-F 99]

One process compiles again and again (recompiling.py), recorded all the time. dynprof-bpf is stopped (SIGSTOP) in every
second window: its BPF programs, probes and samples go on, but nothing reads the target's memory. Printed is by how much
the target's CPU time of a compile is larger in the windows in which it runs, median with its 95 % confidence interval.
Events wait in the ring meanwhile: before each window there is a pause, in which dynprof-bpf runs and catches up.
"""

import argparse
import os
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

import bench_cost

PAUSE_S = 0.5


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--depth", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=1, help="compiles in a window")
    parser.add_argument("--pairs", type=int, default=150)
    parser.add_argument("--fresh", type=int, default=40, help="pairs with one process: torch becomes slower with age")
    parser.add_argument("-F", "--frequency", type=int, default=99)
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("error: needs root\nhint: sudo make bench-cost")
    more, seconds = [], []
    with tempfile.TemporaryDirectory() as name:
        for first in range(0, options.pairs, options.fresh):
            pairs = min(options.fresh, options.pairs - first)
            measure(options, pairs, Path(name), more, seconds)
    low, high = bench_cost.interval(more)
    print(f"a compile takes {statistics.median(seconds):.4f} s of CPU while dynprof-bpf is stopped, {len(more)} pairs")
    print(f"while it runs: {statistics.median(more):+.2f} % ({low:+.2f} ... {high:+.2f})")


def measure(options, pairs, cxx_dir, more, seconds):
    target = bench_cost.Target(options.backend, options.depth, f"compile {options.repeat}", cxx_dir)
    try:
        target.warm_up()
        folder = Path(tempfile.mkdtemp(dir=cxx_dir))
        run = bench_cost.attach(f"dynprof -F {options.frequency}", target.process.pid, folder, None, 4)
        try:
            last = stopped_window(target, run)
            for _ in range(pairs):
                time.sleep(PAUSE_S)
                running = target.window().cpu_s
                after = stopped_window(target, run)
                more.append((running / ((last + after) / 2) - 1) * 100)
                seconds.append(after)
                last = after
            run.interrupt()
            run.wait()
        finally:
            run.kill()
    finally:
        target.process.kill()


def stopped_window(target, run):
    time.sleep(PAUSE_S)
    run.signal(signal.SIGSTOP)
    try:
        return target.window().cpu_s
    finally:
        run.signal(signal.SIGCONT)


if __name__ == "__main__":
    main()
