"""A process that does the same work again and again on request, for bench_cost.py.

    recompiling.py [--backend aot_eager] [--depth N]

Prints `ready <pid>`. Each line on stdin names a work and how often to do it:

    compile  torch forgets its compiles and compiles the training step again, forward and backward
    steps    runs the compiled step STEPS times
    serve    answers REQUESTS requests by the compiled model, 50 a second, on two threads
    load     goes through BATCHES batches of a DataLoader with two worker processes
    threads  200 threads, each of which works a little and sleeps 5 ms, TURNS times

Then prints `cpu <number> <CPU seconds in the kernel> <CPU seconds of each>`, of this process without its children;
before that, `clock <number> <seconds of each>`, and of `serve`, `latency <number> <median> <99th percentile>`, from
when a request is due to its answer.
`profiler on`, or `profiler on stacks`, begins torch.profiler, and `profiler off` ends it; they print nothing.
`end` ends it.
"""

import argparse
import gc
import os
import queue
import resource
import statistics
import sys
import threading
import time

import torch

ARGUMENTS = argparse.ArgumentParser()
ARGUMENTS.add_argument("--backend", default="aot_eager")
ARGUMENTS.add_argument("--depth", type=int, default=4)
OPTIONS = ARGUMENTS.parse_args()
STEPS, REQUESTS, BATCHES, TURNS = 100, 50, 200, 40


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


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 8 * BATCHES

    def __getitem__(self, index):
        return torch.full((64, 64), float(index)).cos().sum(0)


class Server:
    def __init__(self, answer):
        self.answer = answer
        self.requests = queue.Queue()
        self.latencies = queue.Queue()
        for _ in range(2):
            threading.Thread(target=self.work, daemon=True).start()

    def work(self):
        while True:
            due = self.requests.get()
            self.answer()
            self.latencies.put(time.monotonic() - due)

    def serve(self, number):
        begin = time.monotonic()
        for i in range(number):
            due = begin + i / 50
            time.sleep(max(0, due - time.monotonic()))
            self.requests.put(due)
        return [self.latencies.get() for _ in range(number)]


def run_threads():
    def turns():
        for _ in range(TURNS):
            sum(range(1000))
            time.sleep(0.005)

    threads = [threading.Thread(target=turns) for _ in range(200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    if OPTIONS.backend == "inductor":
        torch._inductor.config.force_disable_caches = True
    model = Model(OPTIONS.depth)
    data = torch.randn(8, 32)
    step = server = loader = profiler = None
    latencies = []
    print("ready", os.getpid(), flush=True)

    def compile_anew():
        nonlocal step
        torch._dynamo.reset()
        gc.collect()  # at the same moment each time
        step = torch.compile(model, backend=OPTIONS.backend)
        step(data).backward()

    def run_steps():
        for _ in range(STEPS):
            step(data).backward()

    def infer():
        with torch.no_grad():
            step(data)

    def serve():
        nonlocal server
        server = server or Server(infer)
        latencies.extend(server.serve(REQUESTS))

    def load():
        nonlocal loader
        loader = loader or torch.utils.data.DataLoader(Numbers(), batch_size=8, num_workers=2, persistent_workers=True)
        for batch in loader:
            batch.mean().item()

    works = {"compile": compile_anew, "steps": run_steps, "serve": serve, "load": load, "threads": run_threads}
    windows = 0
    for line in sys.stdin:
        words = line.split()
        if words[:1] == ["end"]:
            break
        if words[:1] == ["profiler"]:
            if words[1] == "on":
                profiler = torch.profiler.profile(
                    activities=[torch.profiler.ProfilerActivity.CPU], with_stack="stacks" in words
                )
                profiler.start()
            else:
                profiler.stop()
                profiler = None
            continue
        in_kernel = resource.getrusage(resource.RUSAGE_SELF).ru_stime
        done, clock = [], []
        while len(done) < int(words[1]):
            cpu, began = time.process_time(), time.perf_counter()
            works[words[0]]()
            done.append(time.process_time() - cpu)
            clock.append(time.perf_counter() - began)
        windows += 1
        in_kernel = resource.getrusage(resource.RUSAGE_SELF).ru_stime - in_kernel
        if latencies:
            slowest = statistics.quantiles(latencies, n=100)[98]
            print("latency", windows, statistics.median(latencies), slowest, flush=True)
            latencies.clear()
        print("clock", windows, *clock, flush=True)
        print("cpu", windows, in_kernel, *done, flush=True)


main()
