"""What watching a cold torch.compile costs it: CPU time of the compiling process, all ways interleaved.

    bench_compile.py [--rounds N] [--backend aot_eager]

Each round starts a new process per way, in turn, and lets it compile the same training step once:
nothing (bare), dynprof-bpf attached at 99 and 999 Hz with every exact source on, TORCH_COMPILE_CPROFILE,
TORCH_TRACE, torch.profiler. The table has the median of the ratios to the bare run of the same round,
their quartiles, and the same for a second bare run (the noise). Then the steady step: how much CPU a
compiled step takes with and without dynprof-bpf, windows in turn in one process.
"""

import argparse
import os
import re
import statistics
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPO = HERE.parent.parent
sys.path.insert(0, str(REPO / "tests"))

import support  # noqa: E402

JOB = HERE / "cold_compile.py"
WAYS = ("bare", "bare again", "dynprof-bpf 99 Hz", "dynprof-bpf 999 Hz",
        "dynprof-bpf 99 Hz --no-watchpoints", "TORCH_COMPILE_CPROFILE", "TORCH_TRACE", "torch.profiler")


def attach(pid, hertz, folder, *options):
    run = support.Running(
        [support.BINARY, "record", "--no-svg", "-F", hertz, "-o", folder, *options, "-p", pid],
        folder.parent,
    )
    run.wait_for_err(r"(?m)^Sampling ")
    return run


def compile_once(way, backend, folder):
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
    try:
        hertz = re.search(r"(\d+) Hz", way)
        if hertz:
            options = [word for word in way.split() if word.startswith("--")]
            recorder = attach(target.pid, int(hertz[1]), folder / "out", *options)
        target.send("go")
        cpu = float(target.wait_for(r"^cpu (\S+)", timeout=300)[1])
        target.send("end")
        target.wait()
        if recorder:
            recorder.wait()
        return cpu
    finally:
        target.kill()


def quartiles(values):
    low, middle, high = statistics.quantiles(values, n=4)
    return middle, low, high


def cold(rounds, backend):
    cpu = {way: [] for way in WAYS}
    for number in range(rounds):
        order = WAYS if number % 2 == 0 else WAYS[::-1]
        for way in order:
            with tempfile.TemporaryDirectory() as folder:
                cpu[way].append(compile_once(way, backend, Path(folder)))
    print(f"cold compile, backend {backend}: CPU of the compiling process, {rounds} rounds, "
          f"bare {statistics.median(cpu['bare']):.2f} s")
    for way in WAYS[1:]:
        ratios = [(a / b - 1) * 100 for a, b in zip(cpu[way], cpu["bare"])]
        print("  %-34s %+7.1f %%  (%+.1f ... %+.1f)" % (way, *quartiles(ratios)))


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
            for number in range(rounds):
                for way in slower:
                    before = rate()
                    run = attach(target.pid, 99, folder / f"out{number}") if way != "nothing" else None
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
    options = arguments.parse_args()
    if os.geteuid() != 0:
        sys.exit("error: needs root\nhint: sudo make bench")
    cold(options.rounds, options.backend)
    steady(options.rounds, options.backend)


main()
