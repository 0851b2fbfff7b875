#!/usr/bin/env python3
"""What a recording costs a training step of many launches on a real GPU, every way in one run.

    launch_cost.py --build DIR --folder DIR [--rounds N] [--seconds S]

Three processes of launch_job.py: one that has never had libdynprof_cupti.so (bare; recorded without the GPU;
recorded by probes), one that has it since `record --gpu on` loaded it (recorded; idle afterwards), and one for
torch.profiler. Each round runs every way once, in a random order, S seconds of work each. The table: the time of a
step beside bare in the same round, median and quartiles over the rounds.
"""

import argparse
import random
import statistics
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests" / "gpu")]

from told_job import TRACED, WITHOUT, Job, Recording  # noqa: E402

SAMPLING = "(?m)^Sampling "
KINDS = ("gpu", "cpu")


class Ways:
    def __init__(self, options):
        self.options, self.numbers = options, iter(range(10**6))
        self.plain, self.loaded, self.profiled = (
            Job(ROOT / "tests" / "gpu" / "launch_job.py") for _ in range(3)
        )
        for job in (self.plain, self.loaded, self.profiled):
            job.await_ready()

    def _recorded(self, job, kind, steps, mode, sign):
        recording = Recording(
            self.options.build, self.options.folder, job, f"cost{next(self.numbers)}", mode, sign
        )
        seconds = self._seconds(job, kind, steps)
        recording.stop()
        return seconds

    @staticmethod
    def _seconds(job, kind, steps, verb="work"):
        return float(job.tell(f"{verb} {kind} {steps}")[0])

    def bare(self, kind, steps):
        return self._seconds(self.plain, kind, steps)

    def bare_again(self, kind, steps):
        return self._seconds(self.plain, kind, steps)

    def sampled_only(self, kind, steps):
        return self._recorded(self.plain, kind, steps, "off", SAMPLING)

    def probes(self, kind, steps):
        return self._recorded(self.plain, kind, steps, "auto", WITHOUT)

    def library_recorded(self, kind, steps):
        return self._recorded(self.loaded, kind, steps, "on", TRACED)

    def library_idle(self, kind, steps):
        return self._seconds(self.loaded, kind, steps)

    def torch_profiler(self, kind, steps):
        return self._seconds(self.profiled, kind, steps, "profiled")


WAYS = ("bare", "bare_again", "sampled_only", "probes", "library_recorded", "library_idle", "torch_profiler")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=0.5)
    options = parser.parse_args()
    options.build, options.folder = options.build.resolve(), options.folder.resolve()
    ways = Ways(options)
    steps, launches = {}, {}
    for kind in KINDS:
        ways.bare(kind, 20)
        steps[kind] = max(20, round(options.seconds / (ways.bare(kind, 20) / 20)))
        ways.library_recorded(kind, 20)  # loads it
        launches[kind] = int(ways.profiled.tell(f"launches {kind}")[0])
    times = defaultdict(list)
    for _ in range(options.rounds):
        for kind in KINDS:
            for way in random.sample(WAYS, len(WAYS)):
                times[kind, way].append(getattr(ways, way)(kind, steps[kind]))
    for job in (ways.plain, ways.loaded, ways.profiled):
        job.end()
    for kind in KINDS:
        step = statistics.median(times[kind, "bare"]) / steps[kind]
        print(f"{kind}: {launches[kind]} launches a step of {step * 1e6:.0f} us,"
              f" {launches[kind] / step:.0f} a second; {steps[kind]} steps")  # fmt: skip
        for way in WAYS[1:]:
            ratios = [
                100 * (mine / bare - 1)
                for mine, bare in zip(times[kind, way], times[kind, "bare"], strict=True)
            ]
            low, middle, high = statistics.quantiles(ratios, n=4)
            more = statistics.median(times[kind, way]) / steps[kind] - step
            print(f"  {way:18} {middle:+7.2f} %  ({low:+.2f} ... {high:+.2f}),"
                  f" {more / launches[kind] * 1e6:+.2f} us a launch")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
