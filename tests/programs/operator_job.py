"""Eager operators, a compiled region and an autograd backward, on one thread:
operator_job.py RESULT [--profile] [--steps N] [--backend NAME].

Without --profile it waits for a line, works for --seconds, and ends at another line; torch.profiler records N of its
steps, some every now and then. With it there are N steps of the same work, and torch.profiler records all of them.
RESULT is its table of operators: the number of calls and the mean self time, without interrupted calls and with them.
"""

import argparse
import collections
import json
import statistics
import time

import torch

WINDOWS = 10


def make_step(backend):
    torch.manual_seed(0)
    # Matrix products and convolutions are small: the libraries that compute them have no unwind information.
    x = torch.randn(64, 64)
    image = torch.randn(1, 3, 16, 16)
    weight = torch.randn(4, 3, 3, 3)
    long = torch.randn(15_000)
    wide = torch.randn(300, 1000)
    leaf = torch.randn(64, 64, requires_grad=True)

    @torch.compile(backend=backend)
    def region(a):
        return torch.nn.functional.gelu(a @ a).sum() + torch.mm(a, a).relu().mean()

    def eager():
        torch.mm(x, x)
        torch.conv2d(image, weight)
        torch.sort(long)
        torch.softmax(wide, -1)
        torch.cumsum(wide, 0)
        torch.sigmoid(wide)

    def backward():
        torch.mm(leaf, leaf).tanh().sum().backward()
        leaf.grad = None

    def step():
        eager()
        backward()
        with torch.no_grad():
            region(x)

    return step


def profile(step, steps):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        for _ in range(steps):
            step()
    return profiler


def work(step, seconds, steps):
    """Steps for so long; the profilers of WINDOWS times so many of them, at equal distances."""
    began = time.monotonic()
    profilers = []
    while (passed := time.monotonic() - began) < seconds:
        if passed >= len(profilers) * seconds / WINDOWS:
            profilers.append(profile(step, steps))
        else:
            step()
    return profilers


def uninterrupted_mean(times):
    """Their mean without those in which another program had the CPU, when the profiler's times go on: these take
    several times as long. The median would leave out what makes some calls slower, such as caches that others fill."""
    longest = 3 * statistics.median(times)
    return statistics.fmean(time for time in times if time <= longest)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("result")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--seconds", type=float, default=12)
    parser.add_argument("--backend", default="inductor")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    step = make_step(arguments.backend)
    for _ in range(3):
        step()
    print("ready", flush=True)
    if arguments.profile:
        profilers = [profile(step, arguments.steps)]
    else:
        input()
        profilers = work(step, arguments.seconds, arguments.steps // WINDOWS)
        print("done", flush=True)
        input()
    times = collections.defaultdict(list)
    for profiler in profilers:
        for event in profiler.events():
            times[event.name].append(event.self_cpu_time_total)
    rows = {
        name: {"count": len(all), "self_us": uninterrupted_mean(all), "mean_us": statistics.fmean(all)}
        for name, all in times.items()
    }
    with open(arguments.result, "w", encoding="utf-8") as file:
        json.dump(rows, file)


if __name__ == "__main__":
    main()
