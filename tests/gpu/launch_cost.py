#!/usr/bin/env python3
"""What a recording costs a training step of many launches on a real GPU, every way in one run.

    launch_cost.py --build DIR [--build DIR...] --folder DIR [--rounds N] [--seconds S] [--ways LIST]
                   [--kinds LIST]

Processes of launch_job.py: one that has never had libdynprof_cupti.so (bare; recorded without the GPU; recorded by
probes), one for each build that has its library since `record --gpu on` loaded it (recorded; recorded with the stacks
of some launches alone; idle afterwards), one whose library writes a dump file from the start, without any probe or
stack, and one for torch.profiler. Each round runs every way once, in a random order, S seconds of work each. The table:
the time of a step, and the CPU time of the job in it, beside bare in the same round, median and quartiles over the
rounds.
"""

import argparse
import random
import signal
import statistics
import sys
from collections import defaultdict
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests" / "gpu")]

from told_job import TRACED, WITHOUT, Job, Recording  # noqa: E402

SAMPLING = "(?m)^Sampling "


class Ways:
    """Each is a function of the kind of step and how many steps, which returns their time and CPU time."""

    def __init__(self, options):
        self.options, self.numbers = options, iter(range(10**6))
        self.plain, self.profiled = self._job(), self._job()
        dump = {"DYNPROF_GPU_DUMP": str(options.folder / "dump-%p")}
        self.dumping = self._job(options.build[0] / "libdynprof_cupti.so", dump)
        self.loaded = [self._job() for _ in options.build]
        for job in self.jobs():
            job.await_ready()
        self.all = {
            "bare": self.bare,
            "bare again": self.bare,
            "sampled only": lambda *work: self._recorded(0, self.plain, *work, "off", SAMPLING),
            "probes": lambda *work: self._recorded(0, self.plain, *work, "auto", WITHOUT),
            "dump file": partial(self._took, self.dumping),
            "torch.profiler": lambda *work: self._took(self.profiled, *work, "profiled"),
        }
        for i, job in enumerate(self.loaded):
            which = f" {i}" if i else ""
            by_library = partial(self._recorded, i, job, mode="on", sign=TRACED)
            self.all[f"recorded{which}"] = by_library
            self.all[f"sampled stacks{which}"] = partial(
                by_library, options=["--sampled-launch-stacks"]
            )
            self.all[f"idle{which}"] = partial(self._took, job)

    def jobs(self):
        return [self.plain, self.profiled, self.dumping, *self.loaded]

    def bare(self, kind, steps):
        return self._took(self.plain, kind, steps)

    def load(self, kind):
        for i, job in enumerate(self.loaded):
            self._recorded(i, job, kind, 20, "on", TRACED)

    @staticmethod
    def _job(library=None, environment=None):
        return Job(ROOT / "tests" / "gpu" / "launch_job.py", library, environment)

    def _recorded(self, build, job, kind, steps, mode, sign, options=()):
        name = f"cost{next(self.numbers)}"
        recording = Recording(
            self.options.build[build], self.options.folder, job, name, mode, sign, options
        )
        took = self._took(job, kind, steps)
        recording.stop()
        return took

    @staticmethod
    def _took(job, kind, steps, verb="work"):
        return tuple(map(float, job.tell(f"{verb} {kind} {steps}")))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, required=True, action="append")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--ways", help="of the table, with commas: default all")
    parser.add_argument("--kinds", default="gpu,cpu", help="of the steps of launch_job.py, with commas")
    options = parser.parse_args()
    options.build = [build.resolve() for build in options.build]
    options.folder = options.folder.resolve()
    ways = Ways(options)
    wanted = ["bare", *(way for way in ways.all if way != "bare")]
    if options.ways:
        wanted = ["bare", *options.ways.split(",")]
    steps, launches = {}, {}
    kinds = options.kinds.split(",")
    for kind in kinds:
        ways.bare(kind, 20)
        steps[kind] = max(20, round(options.seconds / (ways.bare(kind, 20)[0] / 20)))
        ways.load(kind)
        launches[kind] = int(ways.profiled.tell(f"launches {kind}")[0])
    times = defaultdict(list)
    # What was measured until the run was stopped is shown.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        for _ in range(options.rounds):
            for kind in kinds:
                for way in random.sample(wanted, len(wanted)):
                    times[kind, way].append(ways.all[way](kind, steps[kind]))
    finally:
        show(kinds, times, wanted, steps, launches)
    for job in ways.jobs():
        job.end()
    return 0


def show(kinds, times, wanted, steps, launches):
    for kind in kinds:
        bare = times[kind, "bare"]
        if not bare:
            continue
        step = statistics.median(seconds for seconds, _ in bare) / steps[kind]
        print(f"{kind}: {launches[kind]} launches a step of {step * 1e6:.0f} us,"
              f" {launches[kind] / step:.0f} a second; {steps[kind]} steps, {len(bare)} rounds")  # fmt: skip
        for way in wanted[1:]:
            # In a run that was stopped the last round lacks some.
            pairs = list(zip(times[kind, way], bare, strict=False))
            if len(pairs) < 2:
                continue
            text = f"  {way:14}"
            for which, name in enumerate(("time", "CPU")):
                more = [mine[which] - base[which] for mine, base in pairs]
                ratios = [100 * extra / base[which] for extra, (_, base) in zip(more, pairs, strict=True)]
                low, middle, high = statistics.quantiles(ratios, n=4)
                each = statistics.median(more) / steps[kind] / launches[kind]
                text += f"  {name} {middle:+6.1f} % ({low:+.1f} ... {high:+.1f}), {each * 1e6:+5.2f} us a launch"
            print(text)


if __name__ == "__main__":
    sys.exit(main())
