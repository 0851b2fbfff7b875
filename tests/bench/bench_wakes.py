"""What it costs a thread that its samples wake the process that reads them.

    bench_wakes.py [--rounds 24] [-F 999]

A process that parses and compiles Python source is sampled by perf events in two ways (sample_wakes.c): each sample
wakes the reader, or none does and the reader looks every 20 ms. Windows of each way alternate with windows in which
nothing is attached. Printed is by how much more CPU time the process uses: medians, 95 % confidence intervals.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import bench_cost

HERE = Path(__file__).resolve().parent
WORK = """
import ast, sys, time
source = open(ast.__file__).read()
for _ in sys.stdin:
    begin = time.process_time()
    for _ in range(8):
        tree = ast.parse(source)
        compile(tree, "source", "exec")
        ast.dump(tree)
    print(time.process_time() - begin, flush=True)
"""
WINDOWS, SETTLE_S = 3, 0.3  # of the windows the quickest counts


def quickest(worker):
    seconds = []
    for _ in range(WINDOWS):
        worker.stdin.write("\n")
        seconds.append(float(worker.stdout.readline()))
    return min(seconds)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("-F", "--frequency", type=int, default=999)
    options = parser.parse_args()
    more = {"poll": [], "wake": []}
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "sample_wakes"
        subprocess.run(["cc", "-O2", "-o", program, HERE / "sample_wakes.c"], check=True)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
        with subprocess.Popen([sys.executable, "-c", WORK], **pipes) as worker:
            last = quickest(worker)
            for _ in range(options.rounds):
                for way, values in more.items():
                    words = [program, str(worker.pid), str(options.frequency), way]
                    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as sampler:
                        if sampler.stdout.readline() != "ready\n":
                            sys.exit("error: nothing was sampled\nhint: run it as root")
                        time.sleep(SETTLE_S)
                        during = quickest(worker)
                        sampler.kill()
                    after = quickest(worker)
                    values.append((during / ((last + after) / 2) - 1) * 100)
                    last = after
            worker.stdin.close()
    for way, values in more.items():
        low, high = bench_cost.interval(values)
        print(f"{way}: {statistics.median(values):+.2f} % ({low:+.2f} ... {high:+.2f})")
    between, low, high = bench_cost.difference(more["wake"], more["poll"])
    scale = 10_000 / options.frequency  # % of a second to us a sample
    print(f"a wake-up: {between * scale:.0f} us ({low * scale:.0f} ... {high * scale:.0f})")


if __name__ == "__main__":
    main()
