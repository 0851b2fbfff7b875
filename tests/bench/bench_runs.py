"""What counting runs of compiled regions costs the process that runs them (root):

    bench_runs.py [--rounds N] [--seconds S] [--rate R]

One process (tests/programs/steady_job.py) runs a small region R times a second in batches of S seconds: with nothing
attached, beside `record --passive`, beside `record`, and beside `record --count-all-runs`, in turn. Printed is the CPU
time of a call in each, medians with quartiles. `record` measures lengths until the limit of hits is reached
(DP_RUN_HITS_PER_SECOND); with R 0 the region runs as often as it can.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
sys.path.insert(0, str(HERE.parent / "runtime"))

import support  # noqa: E402

WAYS = {"nothing attached": None, "record --passive": ["--passive"], "record": [], "all runs": ["--count-all-runs"]}


def quartiles(values):
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:9.0f} ({low:.0f} ... {high:.0f})"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rate", type=float, default=2000)
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("error: needs root\nhint: run it with sudo")
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        target = support.spawn(
            [
                support.venv_python().path,
                HERE.parent / "programs" / "steady_job.py",
                folder / "truth.json",
                "--fast",
                str(options.seconds),
                "--rate",
                str(options.rate),
                "--batches",
                str(1 + len(WAYS) * options.rounds),
            ],
            timeout=120,
        )
        counted = []
        done = 0

        def batch():
            nonlocal done
            target.send("go")
            done += 1
            target.wait_for(rf"^batch {done}$", timeout=10 * options.seconds)

        try:
            batch()  # warms up
            for number in range(options.rounds):
                for name, arguments in WAYS.items():
                    if arguments is None:
                        batch()
                        continue
                    out = folder / f"{name}{number}"
                    run = support.Running(
                        [support.BINARY, "record", "-o", out, *arguments, "-p", target.pid], folder
                    )
                    run.wait_for_err(r"(?m)^Sampling ")
                    batch()
                    run.interrupt()
                    run.wait()
                    if not arguments:
                        (region,) = json.loads((out / "compiles.json").read_text())["runs"]["regions"]
                        counted.append(region)
            target.wait_for("^done", timeout=60)
            target.send("end")
            target.wait()
        finally:
            target.kill()
        batches = json.loads((folder / "truth.json").read_text())["batches"][1:]
    rate = statistics.median(one["calls"] / one["seconds"] for one in batches)
    print(f"a region that runs {rate:,.0f} times a second, {options.rounds} rounds of {options.seconds:g} s")
    for index, name in enumerate(WAYS):
        per_call = [1e9 * one["cpu_s"] / one["calls"] for one in batches[index :: len(WAYS)]]
        print(f"  CPU ns a call, {name + ':':<18}{quartiles(per_call)}")
    for one, region in zip(batches[list(WAYS).index("record") :: len(WAYS)], counted, strict=True):
        print(
            f"  calls {one['calls']:>8,}, counted {region['calls']:>8,}, complete: {region['complete']}, "
            f"per run {1e6 * region['run_s']:.1f} us, search {1e6 * (region['search_s'] or 0):.1f} us"
        )


main()
