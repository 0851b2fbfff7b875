"""What watching a cold torch.compile costs it: CPU time of the compiling process, all ways interleaved.

    bench_compile.py [--rounds N] [--backend aot_eager] [--only WAYS] [--no-steady] [--before PROGRAM]

Each round starts a new process per way, in turn, and lets it compile the same training step once:
nothing (bare), dynprof-bpf attached at 99 and 999 Hz with every exact source on, perf record -g attached likewise,
TORCH_COMPILE_CPROFILE, TORCH_TRACE, torch.profiler. The table has the median of the ratios to the bare run of
the same round, their quartiles, and the same for a second bare run (the noise); of its CPU time, and of the wall
time from begin to end. What the kernel counts of our programs is reported separately (kernel.bpf_stats_enabled, in
runs of their own): all runs on the whole machine, the bound of what of the compile's time they can be. Then the
steady step: how much CPU a compiled step takes with and without dynprof-bpf, windows in turn in one process.

--before: another dynprof-bpf, of a tree before a change, as a way of its own.
--only: a regular expression; ways that do not match are left out (bare runs never are).
"""

import argparse
import os
import re
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPO = HERE.parent.parent
sys.path.insert(0, str(REPO / "tests"))

import bench_overhead as overhead  # noqa: E402
import support  # noqa: E402

JOB = HERE / "cold_compile.py"
BEFORE = {}  # "program": of --before
WAYS = ("bare", "bare again", "dynprof-bpf 99 Hz", "before 99 Hz", "perf record -g 99 Hz", "dynprof-bpf 999 Hz",
        "before 999 Hz", "perf record -g 999 Hz",
        "dynprof-bpf 99 Hz --no-watchpoints", "dynprof-bpf 999 Hz --no-direct-map",
        "dynprof-bpf 999 Hz --no-watchpoints", "TORCH_COMPILE_CPROFILE", "TORCH_TRACE", "torch.profiler")


STATS_SWITCH = Path("/proc/sys/kernel/bpf_stats_enabled")


def programs():
    """{id: (name, ns, runs)}"""
    return {
        row["id"]: (row.get("name", "?"), row.get("run_time_ns", 0), row.get("run_cnt", 0))
        for row in support.bpf_programs()
    }


def attach_perf(pid, hertz, folder):
    run = support.Running(
        ["perf", "record", "-g", "-e", "cpu-clock", "-F", hertz, "-o", folder / "perf.data", "-p", pid], folder
    )
    time.sleep(1)  # it says nothing when it has begun
    return run


def attach(pid, hertz, folder, *options, program=None):
    run = support.Running(
        [program or support.BINARY, "record", "-F", hertz, "-o", folder, *options, "-p", pid],
        folder.parent,
    )
    run.wait_for_err(r"(?m)^Sampling ")
    return run


def recorder_of(way, pid, hertz, folder):
    """Attached by now; None for ways that attach nothing."""
    if way.startswith("perf"):
        return attach_perf(pid, hertz, folder)
    if not way.startswith(("dynprof-bpf", "before")):
        return None
    options = [word for word in way.split() if word.startswith("--")]
    program = BEFORE["program"] if way.startswith("before") else None
    return attach(pid, hertz, folder / "out", *options, program=program)


def compile_once(way, backend, folder, counted=None):
    """(CPU seconds, wall seconds); `counted` gets {program: (ns, runs)} of ours."""
    env = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"), "TMPDIR": str(folder)}
    arguments = ["--backend", backend]
    if way == "TORCH_COMPILE_CPROFILE":
        env["TORCH_COMPILE_CPROFILE"] = "1"
    elif way == "TORCH_TRACE":
        env["TORCH_TRACE"] = str(folder / "trace")
    elif way == "torch.profiler":
        arguments.append("--profiler")
    python = support.venv_python().path
    target = support.spawn([python, JOB, *arguments], timeout=120, env=env)
    recorder = None
    others = set(programs()) if counted is not None else set()
    try:
        hertz = re.search(r"(\d+) Hz", way)
        if hertz:
            recorder = recorder_of(way, target.pid, int(hertz[1]), folder)
        target.send("go")
        said = target.wait_for(r"^cpu (\S+) wall (\S+)", timeout=300)
        for number, (name, ns, runs) in programs().items() if counted is not None else ():
            if number not in others:
                counted[name] = (ns, runs)
        if recorder:
            recorder.interrupt()  # no sample of what comes after what was counted
            recorder.wait()
        target.send("end")
        target.wait()
        return float(said[1]), float(said[2])
    finally:
        target.kill()


def quartiles(values):
    low, middle, high = statistics.quantiles(values, n=4)
    return middle, low, high


def cold(rounds, backend, only):
    ways = [way for way in WAYS if way.startswith("bare") or re.search(only, way)]
    if not BEFORE:
        ways = [way for way in ways if not way.startswith("before")]
    if not shutil.which("perf"):
        print("perf is not installed: it is left out")
        ways = [way for way in ways if not way.startswith("perf")]
    found = {way: [] for way in ways}
    for number in range(rounds):
        order = ways if number % 2 == 0 else ways[::-1]
        for way in order:
            with tempfile.TemporaryDirectory() as folder:
                found[way].append(compile_once(way, backend, Path(folder)))
    cpu, wall = (statistics.median(one[i] for one in found["bare"]) for i in (0, 1))
    print(f"cold compile, backend {backend}, {rounds} rounds; bare {cpu:.2f} s CPU, {wall:.2f} s wall")
    print("  %-34s %-30s %s" % ("", "its CPU time", "wall time"))
    for way in ways[1:]:
        cells = []
        for i in (0, 1):
            ratios = [(a[i] / b[i] - 1) * 100 for a, b in zip(found[way], found["bare"], strict=True)]
            cells.append("%+.1f %% (%+.1f ... %+.1f)" % quartiles(ratios))
        print("  %-34s %-30s %s" % (way, *cells))
    for way in ways:
        if way.startswith("dynprof-bpf"):
            count_programs(way, backend)


PYTHON_FRAME, NATIVE_FRAME = 0, 1


def frames_per_sample(folder):
    """(samples, Python frames of one, native ones), of the whole recording."""
    dump = overhead.dump_of(folder)
    kinds = [frame[4] for frame in dump["frames"]]
    counts = [(0, 0)]
    for caller, frame in dump["stacks"][1:]:  # callers come first
        python, native = counts[caller]
        counts.append((python + (kinds[frame] == PYTHON_FRAME), native + (kinds[frame] == NATIVE_FRAME)))
    stacks = [counts[sample[3]] for sample in dump["samples"]]
    return len(stacks), *(statistics.mean(stack[i] for stack in stacks) for i in (0, 1))


def count_programs(way, backend):
    counted, was = {}, STATS_SWITCH.read_text()
    STATS_SWITCH.write_text("1\n")
    try:
        with tempfile.TemporaryDirectory() as folder:
            cpu, wall = compile_once(way, backend, Path(folder), counted)
            samples, python, native = frames_per_sample(Path(folder) / "out")
    finally:
        STATS_SWITCH.write_text(was)
    spent = sum(ns for ns, _ in counted.values()) / 1e9
    print(f"{way}: BPF programs {1000 * spent:.1f} ms, {100 * spent / cpu:.2f} % of {cpu:.2f} s CPU")
    print(f"    a sample, every process's timers in it: {counted['sample_cpu'][0] / samples / 1000:.1f} us; "
          f"{samples:,} of them, {python:.0f} Python frames and {native:.0f} native ones each")
    for name, (ns, runs) in sorted(counted.items(), key=lambda row: -row[1][0]):
        if runs:
            print(f"    {name:<16} {ns / 1e6:8.2f} ms  {runs:9,} runs  {ns / runs:8.0f} ns each")


def steady(rounds, backend):
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        env = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"), "TMPDIR": str(folder)}
        python = support.venv_python().path
        target = support.spawn([python, JOB, "--backend", backend], timeout=120, env=env)
        seen = 0

        def rate():
            nonlocal seen
            target.send("steps 2")
            seen += 1
            return float(target.wait_for(rf"^rate {seen} (\S+)", timeout=60)[1])

        try:
            target.send("go")
            target.wait_for("^cpu", timeout=300)
            rate()
            slower = {"nothing": [], "dynprof-bpf 99 Hz": []}
            if BEFORE:
                slower["before 99 Hz"] = []
            if shutil.which("perf"):
                slower["perf record -g 99 Hz"] = []
            for _ in range(rounds):
                for way in slower:
                    before = rate()
                    run = recorder_of(way, target.pid, 99, Path(tempfile.mkdtemp(dir=folder)))
                    time.sleep(1)  # what attaching costs is not a steady step's
                    during = rate()
                    if run:
                        run.signal(2)
                        run.wait()
                    after = rate()
                    slower[way].append(((before + after) / 2 / during - 1) * 100)
            print(f"steady step, backend {backend}: CPU of a step, {rounds} rounds of 2 s, "
                  f"{before:.0f} steps per CPU second")
            for way, values in slower.items():
                print("  %-24s %+7.1f %%  (%+.1f ... %+.1f)" % (way, *quartiles(values)))
            target.send("end")
            target.wait()
        finally:
            target.kill()


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--rounds", type=int, default=7)
    arguments.add_argument("--backend", default="aot_eager")
    arguments.add_argument("--only", default="")
    arguments.add_argument("--no-steady", action="store_true")
    arguments.add_argument("--before", type=Path)
    options = arguments.parse_args()
    if os.geteuid() != 0:
        sys.exit("error: needs root\nhint: sudo make bench")
    if options.before:
        BEFORE["program"] = options.before.resolve()
    cold(options.rounds, options.backend, options.only)
    if not options.no_steady:
        steady(options.rounds, options.backend)


main()
