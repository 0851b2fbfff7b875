"""One cold compile of a training step, for bench_compile.py. Its caches are its own.

    cold_compile.py [--backend aot_eager] [--profiler]

Prints `ready <pid>`, waits for a line, compiles, prints `cpu <seconds> wall <seconds> faults <number>`: this
process alone, without its children; the page faults of its main thread. Then runs the compiled step for
as long as stdin says: `steps SECONDS` prints `rate <number> <steps per CPU second>`. `end` ends it.
"""

import argparse
import os
import resource
import sys
import time

import torch

ARGUMENTS = argparse.ArgumentParser()
ARGUMENTS.add_argument("--backend", default="aot_eager")
ARGUMENTS.add_argument("--profiler", action="store_true")
OPTIONS = ARGUMENTS.parse_args()


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.up = torch.nn.Linear(width, 2 * width)
        self.down = torch.nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


class Model(torch.nn.Module):
    def __init__(self, depth=16, width=32):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block(width) for _ in range(depth))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x.square().mean()


def page_faults():
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    windows = 0
    model = Model()
    step = torch.compile(model, backend=OPTIONS.backend)
    data = torch.randn(8, 32)

    def run():
        step(data).backward()

    print("ready", os.getpid(), flush=True)
    for line in sys.stdin:
        words = line.split()
        if words[:1] == ["go"]:
            cpu, wall, faults = time.process_time(), time.monotonic(), page_faults()
            if OPTIONS.profiler:
                with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
                    run()
            else:
                run()
            cpu, wall, faults = time.process_time() - cpu, time.monotonic() - wall, page_faults() - faults
            print("cpu", cpu, "wall", wall, "faults", faults, flush=True)
        elif words[:1] == ["steps"]:
            began, steps = time.monotonic(), 0
            cpu = time.process_time()
            while time.monotonic() < began + float(words[1]):
                run()
                steps += 1
            windows += 1
            print("rate", windows, steps / (time.process_time() - cpu), flush=True)
        else:
            break


main()
