"""What sampling costs the sampled, and us: the loop of deep_loop.py under each profiler in turn.

    bench_overhead.py [--rounds N] [--seconds S] [--python 3.15]

One target process lives through all of it. Every window with a profiler lies between two windows
without one, and its slowdown is taken against the mean of those two; the table shows the median
over the rounds and, for the noise, the quartiles and the same measure with no profiler (A/A).
`net` leaves out the time the target waited for a CPU that others had; `wall` does not.

The loop runs on the virtual environment's interpreter, or on one of scripts/interpreters.sh: from 3.15 on that has a
sampler of its own (`profiling.sampling`), which is another way then. The costs below the table are those of torch too,
and are left out for such an interpreter.
"""

import argparse
import json
import mmap
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPO = HERE.parent.parent
sys.path.insert(0, str(REPO / "tests"))

import support  # noqa: E402
from own_cost import cpu_seconds, resident_mb  # noqa: E402

STATS_SWITCH = Path("/proc/sys/kernel/bpf_stats_enabled")


class Loop:
    """deep_loop.py, and how far it got."""

    def __init__(self, python, *arguments):
        self._file = tempfile.NamedTemporaryFile()
        self._file.write(bytes(16))
        self._file.flush()
        argv = [python, HERE / "deep_loop.py", self._file.name, *arguments]
        self.target = support.spawn(argv, timeout=120)
        self._shared = memoryview(mmap.mmap(self._file.fileno(), 16)).cast("Q")
        self.pid = self.target.pid

    def cprofile(self, on):
        self._shared[1] = int(on)

    def _now(self):
        run_delay = int(Path(f"/proc/{self.pid}/schedstat").read_text().split()[1])
        return self._shared[0], time.monotonic(), run_delay / 1e9

    def rates(self, seconds):
        """(passes per second of the wall clock, the same without waiting for a CPU)"""
        passes, began, delay = self._now()
        time.sleep(seconds)
        passes2, ended, delay2 = self._now()
        done, wall = passes2 - passes, ended - began
        return done / wall, done / (wall - (delay2 - delay))


# ---- profilers, each a start() that returns a stop() ---------------------------------------------


class Ours:
    def __init__(self, hertz, folder):
        self._hertz, self._folder, self._count = hertz, folder, 0
        self.cpu, self.rss_mb, self.recordings = [], [], []

    def start(self, loop):
        self._count += 1
        out = self._folder / f"ours-{loop.pid}-{self._hertz}-{self._count}"
        argv = ["record", "-F", self._hertz, "-o", out, "-p", loop.pid]
        run = support.Running([support.BINARY, *argv], self._folder)
        run.wait_for_err(r"(?m)^Sampling ")
        time.sleep(0.3)
        began, cpu = time.monotonic(), cpu_seconds(run.pid)

        def stop():
            share = (cpu_seconds(run.pid) - cpu) / (time.monotonic() - began)
            self.cpu.append(share)
            self.rss_mb.append(resident_mb(run.pid, "VmHWM"))
            run.interrupt()
            done = run.wait()
            assert done.rc == 0, done
            self.recordings.append(out)

        return stop


class PySpy:
    def __init__(self, hertz, folder, *options):
        self._argv = ["-r", str(hertz), "-f", "raw", "-d", "600", *options]
        self._folder = folder

    def start(self, loop):
        out = self._folder / "py-spy.txt"
        tool = support.VENV / "bin" / "py-spy"
        argv = [tool, "record", "-o", out, "-p", str(loop.pid), *self._argv]
        run = support.Running(argv, self._folder)
        deadline = time.monotonic() + 20
        while "Sampling process" not in run.out + run.err:
            assert run.process.poll() is None and time.monotonic() < deadline, run.peek()
            time.sleep(0.02)
        time.sleep(0.3)

        def stop():
            run.interrupt()
            run.wait()

        return stop


class OwnSampler:
    """CPython 3.15's; `python` is the interpreter that the loop runs on."""

    def __init__(self, python, hertz, folder, *options):
        self._argv = [python, "-m", "profiling.sampling", "attach", "-r", hertz, "-d", 600, "--collapsed", *options]
        self._folder, self.out = folder, folder / f"own-sampler-{hertz}.txt"

    def start(self, loop):
        self.out.unlink(missing_ok=True)
        argv = [*self._argv, "-o", self.out, loop.pid]
        run = support.Running(argv, self._folder, env={"LC_ALL": "C"})  # it refuses a locale that is not installed
        time.sleep(1.5)  # it says nothing when it has begun
        assert run.process.poll() is None, run.peek()

        def stop():
            run.interrupt()
            run.wait()
            assert self.out.stat().st_size, run.peek()

        return stop


class CProfile:
    def start(self, loop):
        loop.cprofile(True)
        time.sleep(0.05)
        return lambda: loop.cprofile(False)


class Nothing:
    def start(self, loop):
        return lambda: None


# ---- the measures --------------------------------------------------------------------------------


def slowdowns(loop, profilers, rounds, seconds):
    """{name: [(wall, net), ...]}: time per pass against the idle windows around, less 1."""
    found = {name: [] for name in profilers}
    for number in range(rounds):
        before = loop.rates(seconds)
        for name, profiler in profilers.items():
            stop = profiler.start(loop)
            during = loop.rates(seconds)
            stop()
            time.sleep(0.2)
            after = loop.rates(seconds)
            found[name].append(
                tuple((b + a) / 2 / d - 1 for b, d, a in zip(before, during, after, strict=True))
            )
            before = after
        print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    return found


def percent(values):
    """'median (quartiles)' in per cent."""
    if len(values) < 2:
        return f"{100 * values[0]:+.2f} %"
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{100 * statistics.median(values):+.2f} % ({100 * low:+.2f} .. {100 * high:+.2f})"


def dump_of(directory):
    tool = support.BUILD / "tests" / "sample_dump"
    if not tool.exists():
        subprocess.run(["make", "-s", tool.relative_to(REPO)], cwd=REPO, check=True)
    done = subprocess.run([tool, directory / "recording.dynprof"], capture_output=True, check=True)
    return json.loads(done.stdout)


def size_and_samples(directory):
    report = json.loads((directory / "compiles.json").read_text())
    return (directory / "recording.dynprof").stat().st_size, report["samples"], report["lost"]


def bpf_programs():
    names = ("sample_cpu", "walk_more", "read_markers")
    return {
        row["id"]: row.get("run_time_ns", 0)
        for row in support.bpf_programs()
        if row.get("name") in names
    }


def bpf_time_per_sample(loop, folder, seconds, *options):
    """Nanoseconds in the sampling programs per sample taken. Runs on other processes, which return
    at once, are in it: an upper bound. A program's time includes those it tail-calls."""
    was = STATS_SWITCH.read_text()
    STATS_SWITCH.write_text("1\n")
    try:
        out = folder / f"bpf-stats-{loop.pid}"
        before = set(bpf_programs())
        argv = [support.BINARY, "record", "-F", 999, *options, "-o", out, "-p", loop.pid]
        run = support.Running(argv, folder)
        run.wait_for_err(r"(?m)^Sampling ")
        time.sleep(seconds)
        spent = sum(ns for number, ns in bpf_programs().items() if number not in before)
        run.interrupt()
        assert run.wait().rc == 0
    finally:
        STATS_SWITCH.write_text(was)
    return spent / size_and_samples(out)[1]


def least_time_per_sample(folder, seconds):
    """Of a shell's loop, the child of a Python process, without native frames: a look-up, and a header copied into
    the ring."""
    code = "import subprocess; print('ready', flush=True); subprocess.run(['sh', '-c', 'while :; do :; done'])"
    parent = support.spawn([sys.executable, "-c", code])
    try:
        return bpf_time_per_sample(parent, folder, seconds, "--no-native", "--no-off-cpu")
    finally:
        parent.kill()


def attach_seconds(loop, folder, times):
    """From our start to the first sample in the recording."""
    found = []
    for number in range(times):
        out = folder / f"attach-{loop.pid}-{number}"
        began = time.monotonic_ns()
        argv = [support.BINARY, "record", "-F", 999, "-o", out, "-p", loop.pid]
        run = support.Running([*argv, "-d", "1s"], folder)
        assert run.wait().rc == 0
        first = min(sample[0] for sample in dump_of(out)["samples"])
        found.append((first - began) / 1e9)
    return statistics.median(found)


def eager_compile_bytes(python, folder):
    """Bytes and samples of a recording of torch.compile with aot_eager, at 999 Hz."""
    job = REPO / "tests" / "programs" / "compile_job.py"
    argv = [python, job, folder / "truth.json", "--backend", "aot_eager", "--unwrapped"]
    target = support.spawn(argv, timeout=120)
    run = support.Running(
        [support.BINARY, "record", "-F", 999, "-o", folder / "eager", "-p", target.pid],
        folder,
    )
    run.wait_for_err(r"(?m)^Sampling ")
    target.send("go")
    target.wait(120)
    assert run.wait().rc == 0
    return size_and_samples(folder / "eager")


def print_slowdowns(found):
    print("| profiler | slowdown, net | slowdown, wall |\n|---|---|---|")
    for name, pairs in found.items():
        wall, net = (percent(values) for values in zip(*pairs, strict=True))
        print(f"| {name} | {net} | {wall} |")


def print_costs(python, loop, ours, folder, options):
    rows = []
    for hertz, profiler in ours.items():
        sizes = [size_and_samples(path) for path in profiler.recordings]
        size, taken = sum(s for s, _, _ in sizes), sum(n for _, n, _ in sizes)
        lost = sum(lost.get("ring_full", 0) for _, _, lost in sizes)
        rows += [
            (f"our CPU at {hertz} Hz", f"{100 * statistics.median(profiler.cpu):.2f} % of a core"),
            (f"our peak RSS at {hertz} Hz", f"{max(profiler.rss_mb):.0f} MB"),
            (f"recording of the loop at {hertz} Hz", f"{size / taken:.1f} bytes/sample"),
            (f"samples lost at {hertz} Hz", f"{lost} of {taken + lost}"),
        ]
    spent = bpf_time_per_sample(loop, folder, 4 * options.seconds)
    rows.append(("BPF time a sample, 62 Python frames", f"{spent / 1000:.1f} us"))
    least = least_time_per_sample(folder, 4 * options.seconds)
    rows.append(("... the least: no frames at all", f"{least / 1000:.2f} us"))
    rows.append(("start to first sample", f"{attach_seconds(loop, folder, 5):.2f} s"))
    loop.target.kill()

    with_torch = Loop(python, "--torch")
    memory = Ours(999, folder)
    stop = memory.start(with_torch)
    time.sleep(options.seconds)
    stop()
    rows.append(("our peak RSS, torch in the target", f"{memory.rss_mb[0]:.0f} MB"))
    first = attach_seconds(with_torch, folder, 5)
    rows.append(("start to first sample, torch in the target", f"{first:.2f} s"))
    with_torch.target.kill()

    size, taken, _ = eager_compile_bytes(python, folder)
    rows.append(("recording of a torch.compile, 999 Hz", f"{size / taken:.1f} bytes/sample"))
    print("\n| cost | measured |\n|---|---|")
    for what, value in rows:
        print(f"| {what} | {value} |")


def interpreter(version):
    if version is None:
        return support.venv_python() or sys.exit("error: no venv\nhint: make setup")
    wanted = tuple(map(int, version.split(".")))
    for python in support.unpacked_interpreters():
        if python.minor == wanted:
            return python
    sys.exit(f"error: no CPython {version}\nhint: scripts/interpreters.sh {version}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--python", metavar="3.N", help="one of scripts/interpreters.sh")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("error: needs root\nhint: sudo make bench")
    found = interpreter(options.python)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        loop = Loop(found.path)
        ours = {hertz: Ours(hertz, folder) for hertz in (99, 999)}
        profilers = {
            "none (A/A: the noise)": Nothing(),
            "dynprof-bpf 99 Hz": ours[99],
            "dynprof-bpf 999 Hz": ours[999],
            "py-spy 99 Hz": PySpy(99, folder),
            "py-spy 999 Hz": PySpy(999, folder),
            "py-spy 999 Hz --nonblocking": PySpy(999, folder, "--nonblocking"),
            "cProfile": CProfile(),
        }
        if found.minor >= (3, 15):
            for hertz in (99, 999):
                profilers[f"CPython's own sampler {hertz} Hz"] = OwnSampler(found.path, hertz, folder)
                profilers[f"... {hertz} Hz --blocking"] = OwnSampler(found.path, hertz, folder, "--blocking")
        try:
            print(f"CPython {'.'.join(map(str, found.version))}, {os.cpu_count()} CPUs,", end=" ")
            print(f"{options.rounds} rounds of {options.seconds:g} s windows\n", flush=True)
            print_slowdowns(slowdowns(loop, profilers, options.rounds, options.seconds))
            sys.stdout.flush()
            if options.python is None:
                print_costs(found.path, loop, ours, folder, options)
        finally:
            loop.target.kill()


if __name__ == "__main__":
    main()
