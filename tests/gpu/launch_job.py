"""Training steps of many launches on a real GPU.

    launch_job.py           waits for lines on stdin:
        work KIND N         N steps; answers `done SECONDS CPU`: the wall time until the GPU has done them, and the
                            CPU time of all threads
        profiled KIND N     under torch.profiler
        launches KIND       answers `done N`: kernels, copies and memsets of a step, by torch.profiler
        exit

KIND: gpu, large tensors, whose kernels take longer than their launches; cpu, small ones: the launches take longer. Both
are compiled, forward and backward, with an optimizer.
"""

import os
import time

import torch

from told_lines import lines

LAYERS = 12
SIZES = {"gpu": (24576, 2048), "cpu": (64, 256)}


def make(batch, width):
    layers = []
    for _ in range(LAYERS):
        layers += [torch.nn.Linear(width, width), torch.nn.GELU(), torch.nn.LayerNorm(width)]
    model = torch.nn.Sequential(*layers).cuda().bfloat16()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    x = torch.randn(batch, width, device="cuda", dtype=torch.bfloat16)

    @torch.compile(dynamic=False)
    def loss_of(x):
        return model(x).square().mean()

    def work(steps):
        for _ in range(steps):
            optimizer.zero_grad(set_to_none=True)
            loss_of(x).backward()
            optimizer.step()
        torch.cuda.synchronize()

    return work


def timed(work, steps):
    began, cpu = time.perf_counter(), time.process_time()
    work(steps)
    return time.perf_counter() - began, time.process_time() - cpu


def profiled(work, steps):
    activities = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[activities.CPU, activities.CUDA]) as profiler:
        took = timed(work, steps)
    return profiler, took


def main():
    works = {kind: make(*size) for kind, size in SIZES.items()}
    for work in works.values():
        work(5)
    print(f"ready {os.getpid()}", flush=True)
    for line in lines():
        verb, _, rest = line.strip().partition(" ")
        if verb == "exit":
            return
        kind, _, steps = rest.partition(" ")
        if verb == "launches":
            profiler, _ = profiled(works[kind], 1)
            on_gpu = [e for e in profiler.events() if e.device_type == torch.autograd.DeviceType.CUDA]
            print(f"done {len(on_gpu)}", flush=True)
            continue
        if verb == "profiled":
            _, took = profiled(works[kind], int(steps))
        else:
            took = timed(works[kind], int(steps))
        print("done", *took, flush=True)


if __name__ == "__main__":
    main()
