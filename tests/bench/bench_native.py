"""What samples of 60 Python and 60 native frames cost, beside the tools that take native stacks too.

    bench_native.py [--rounds N] [--seconds S]

The measure is that of bench_overhead.py: one target, each window with a profiler between two without. perf's
frame-pointer stacks (-g) end at the first library without them; --call-graph dwarf copies 8 KiB of stack a
sample and unwinds later. Tools that are not installed are left out, and named.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import bench_overhead as overhead
import support

HERTZ = 999


class Ours(overhead.Ours):
    def __init__(self, folder, *options):
        super().__init__(HERTZ, folder)
        self._options = options

    def start(self, loop):
        self._count += 1
        out = self._folder / f"ours-{id(self)}-{self._count}"
        argv = [support.BINARY, "record", "-F", HERTZ, "-o", out, "-p", loop.pid, *self._options]
        run = support.Running(argv, self._folder)
        run.wait_for_err(r"(?m)^Sampling ")
        time.sleep(0.3)

        def stop():
            self.rss_mb.append(overhead.peak_rss_mb(run.pid))
            run.interrupt()
            done = run.wait()
            assert done.rc == 0, done
            self.recordings.append(out)

        return stop


class Tool:
    """A command that samples until SIGINT; it is sampling half a second after its start."""

    def __init__(self, folder, *argv):
        self._folder, self._argv = folder, argv

    def start(self, loop):
        argv = [str(word).replace("PID", str(loop.pid)) for word in self._argv]
        run = support.Running(argv, self._folder)
        time.sleep(0.5)
        assert run.process.poll() is None, run.peek()

        def stop():
            run.interrupt()
            run.wait()

        return stop


def peers(folder):
    data = folder / "perf.data"
    perf = ["perf", "record", "-q", "-F", HERTZ, "-o", data, "-p", "PID"]
    program = f"profile:hz:{HERTZ} /pid == PID/ {{ @[ustack(127)] = count(); }}"
    wanted = {
        "perf record -g": [*perf, "-g"],
        "perf record --call-graph dwarf": [*perf, "--call-graph", "dwarf"],
        "py-spy --native, 99 Hz": [
            *(support.VENV / "bin" / "py-spy", "record", "-r", 99, "--native", "-f", "raw"),
            *("-d", 600, "-o", folder / "py-spy.txt", "-p", "PID"),
        ],
        "bpftrace profile, ustack": ["bpftrace", "-q", "-e", program],
    }
    for name, argv in wanted.items():
        if shutil.which(str(argv[0])):
            yield name, Tool(folder, *argv)
        else:
            print(f"not installed: {Path(argv[0]).name}", flush=True)


def build_path(folder):
    library = folder / "native_path.so"
    source = overhead.HERE / "native_path.c"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-fomit-frame-pointer", "-o", library, source], check=True)
    return library


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.5)
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("error: needs root\nhint: sudo python3 tests/bench/bench_native.py")
    found = support.venv_python()
    if found is None:
        sys.exit("error: no venv\nhint: make setup")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        loop = overhead.Loop(found.path, "--native", build_path(folder))
        ours, python_only = Ours(folder), Ours(folder, "--no-native", "--no-off-cpu")
        profilers = {
            "none (A/A: the noise)": overhead.Nothing(),
            f"dynprof-bpf {HERTZ} Hz": ours,
            f"dynprof-bpf {HERTZ} Hz, Python frames alone": python_only,
            **dict(peers(folder)),
        }
        try:
            print(f"{os.cpu_count()} CPUs, {options.rounds} rounds of {options.seconds:g} s windows\n")
            overhead.print_slowdowns(overhead.slowdowns(loop, profilers, options.rounds, options.seconds))
            spent = overhead.bpf_time_per_sample(loop, folder, 4 * options.seconds)
            text = support.Running([support.BINARY, "report", ours.recordings[-1]], folder).wait().out
            cut = [line for line in text.splitlines() if "stacks" in line and line.startswith("#  ")]
            print(f"\nBPF time a sample, 60 Python and 60 native frames: {spent / 1000:.1f} us")
            print(f"our peak RSS: {max(ours.rss_mb):.0f} MB")
            print("\n".join(cut) or "no stack was cut")
        finally:
            loop.target.kill()


if __name__ == "__main__":
    main()
