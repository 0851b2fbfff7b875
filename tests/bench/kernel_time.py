"""Where the kernel spends time for a process that compiles, with and without dynprof-bpf:

    kernel_time.py [--rounds N] [--rows N] [OPTION of dynprof-bpf record ...]

The process of bench_cost.py compiles in windows, alternately alone and with dynprof-bpf attached, while perf samples
its main thread at 4,999 Hz. Prints how much longer it was in each function of the kernel, in ms per compile. perf
itself asks for the events of each mmap, which costs more where other perf events are open: perf_iterate_ctx and
perf_event_mmap_output are not the cost of a recording alone. BPF programs that run with interrupts off are seen where
interrupts come on again, or not at all."""

import argparse
import collections
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import bench_cost

RATE_HZ = 4999
COMPILES = 6
SETTLE_S = 5
LINE = re.compile(r"\s*([0-9a-f]+) (.*) \((.*)\)$")


def kernel_functions(recording):
    """Samples by function; "" stands for user space."""
    counts = collections.Counter()
    script = subprocess.run(["perf", "script", "-i", recording, "-F", "ip,sym,dso"], capture_output=True, text=True)
    for line in script.stdout.splitlines():
        if found := LINE.match(line):
            counts[found[2].split("+")[0] if found[1].startswith("ffff") else ""] += 1
    return counts


def sampled(target, folder):
    """(samples by function, CPU seconds of each compile) of one window."""
    recording = folder / "perf.data"
    command = ["perf", "record", "-q", "-e", "cpu-clock", "-F", str(RATE_HZ), "-t", str(target.process.pid)]
    perf = subprocess.Popen([*command, "-o", recording], stderr=subprocess.DEVNULL)
    time.sleep(1)  # it says nothing when it has begun
    window = target.window()
    perf.terminate()
    perf.wait()
    return kernel_functions(recording), window.each_s


def one_window(target, options, attached):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        way = "dynprof -F 99 " + " ".join(options)
        run = bench_cost.attach(way, target.process.pid, folder, None, SETTLE_S) if attached else None
        try:
            return sampled(target, folder)
        finally:
            if run:
                run.interrupt()
                run.wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--rows", type=int, default=25)
    options, rest = parser.parse_known_args()
    if os.geteuid() != 0 or not shutil.which("perf"):
        sys.exit("error: needs root and perf")
    functions = {False: collections.Counter(), True: collections.Counter()}
    compiles = {False: [], True: []}
    target = None
    for number in range(options.rounds):
        if number % 4 == 0:  # torch's compiles become slower with the process's age
            if target:
                target.process.send("end")
                target.process.wait()
            target = bench_cost.Target("aot_eager", 4, f"compile {COMPILES}")
            target.window()
            target.window()
        for attached in (number % 2 == 1, number % 2 == 0):
            counts, each_s = one_window(target, rest, attached)
            functions[attached] += counts
            compiles[attached] += each_s
    target.process.send("end")
    target.process.wait()

    def ms(attached, names):
        samples = sum(functions[attached][name] for name in names)
        return samples / RATE_HZ * 1e3 / len(compiles[attached])

    kernel = [name for name in set(functions[False]) | set(functions[True]) if name]
    print("ms per compile: alone, with dynprof-bpf, difference")
    for title, names in (("user space", [""]), ("kernel", kernel)):
        print(f"{ms(False, names):9.3f} {ms(True, names):9.3f} {ms(True, names) - ms(False, names):+9.3f}  {title}")
    kernel.sort(key=lambda name: -abs(ms(True, [name]) - ms(False, [name])))
    for name in kernel[: options.rows]:
        alone, watched = ms(False, [name]), ms(True, [name])
        print(f"{alone:9.3f} {watched:9.3f} {watched - alone:+9.3f}  {name}")


if __name__ == "__main__":
    main()
