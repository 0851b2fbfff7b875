"""A process that compiles the same training step anew on request, for bench_cost.py.

    recompiling.py [--backend aot_eager] [--depth N]

Prints `ready <pid>`. For each line `compile N` on stdin: N times torch forgets its compiles and compiles the step
again, forward and backward. For `steps N`: N times runs the compiled step STEPS times. Then prints `cpu <number>
<CPU seconds in the kernel> <CPU seconds of each of the N>`, of this process without its children. `end` ends it.
"""

import argparse
import gc
import os
import resource
import sys
import time

import torch

ARGUMENTS = argparse.ArgumentParser()
ARGUMENTS.add_argument("--backend", default="aot_eager")
ARGUMENTS.add_argument("--depth", type=int, default=4)
OPTIONS = ARGUMENTS.parse_args()
STEPS = 100


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.up = torch.nn.Linear(width, 2 * width)
        self.down = torch.nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


class Model(torch.nn.Module):
    def __init__(self, depth, width=32):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block(width) for _ in range(depth))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x.square().mean()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    if OPTIONS.backend == "inductor":
        torch._inductor.config.force_disable_caches = True
    model = Model(OPTIONS.depth)
    data = torch.randn(8, 32)
    step = None
    print("ready", os.getpid(), flush=True)

    def compile_anew():
        nonlocal step
        torch._dynamo.reset()
        gc.collect()  # at the same moment each time
        step = torch.compile(model, backend=OPTIONS.backend)
        step(data).backward()

    windows = 0
    for line in sys.stdin:
        words = line.split()
        if words[:1] == ["end"]:
            break
        in_kernel = resource.getrusage(resource.RUSAGE_SELF).ru_stime
        done = []
        while len(done) < int(words[1]):
            cpu = time.process_time()
            if words[0] == "compile":
                compile_anew()
            else:
                for _ in range(STEPS):
                    step(data).backward()
            done.append(time.process_time() - cpu)
        windows += 1
        in_kernel = resource.getrusage(resource.RUSAGE_SELF).ru_stime - in_kernel
        print("cpu", windows, in_kernel, *done, flush=True)


main()
