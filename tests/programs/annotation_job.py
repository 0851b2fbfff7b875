"""Marks ranges as programs do, and notes when: annotation_job.py RESULT [--nvtx LIBRARY] [--flood SECONDS].

It waits for a line, marks, writes RESULT (each range with the times of its clock right before and after each of its
two calls), and ends at another line."""

import argparse
import ctypes
import json
import time

import torch

RANGES = 40


def now():
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def work():
    (torch.ones(64, 64) @ torch.ones(64, 64)).sum()


def mark(ranges, name, kind, begin, end):
    before_begin = now()
    begin(name)
    after_begin = now()
    yield
    before_end = now()
    end()
    after_end = now()
    ranges.append({"name": name, "kind": kind, "begin": [before_begin, after_begin], "end": [before_end, after_end]})


def record_function(ranges, name):
    recorder = torch.profiler.record_function(name)
    return mark(ranges, name, "record_function", lambda _: recorder.__enter__(),
                lambda: recorder.__exit__(None, None, None))


def itt(ranges, name):
    return mark(ranges, name, "ITT", torch.profiler.itt.range_push, torch.profiler.itt.range_pop)


def nvtx(library):
    return lambda ranges, name: mark(ranges, name, "NVTX", lambda text: library.nvtxRangePushA(text.encode()),
                                     library.nvtxRangePop)


def nested(ranges, step, way):
    outer, inner = way(ranges, "step"), way(ranges, f"inner {step}")
    next(outer)
    work()
    next(inner)
    work()
    next(inner, None)
    next(outer, None)


def flood(seconds):
    """As many ranges as it can mark; returns how many."""
    end, count = time.monotonic() + seconds, 0
    push, pop = torch.profiler.itt.range_push, torch.profiler.itt.range_pop
    while time.monotonic() < end:
        for _ in range(1000):
            push("flood")
            pop()
        count += 1000
    return count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("result")
    parser.add_argument("--nvtx")
    parser.add_argument("--flood", type=float, default=0)
    arguments = parser.parse_args()
    ways = [record_function, itt]
    if arguments.nvtx:
        ways.append(nvtx(ctypes.CDLL(arguments.nvtx)))
    model = torch.compile(lambda a: (a @ a).relu().sum())
    torch.set_num_threads(1)
    work()
    print("ready", flush=True)
    input()
    ranges = []
    with torch.profiler.record_function("compile the model"):
        model(torch.ones(32, 32))
    for step in range(RANGES):
        for way in ways:
            nested(ranges, step, way)
    with torch.profiler.record_function("name with \x1b[31m \"quotes\"\n and " + "x" * 500):
        work()
    count = flood(arguments.flood) if arguments.flood else 0
    with open(arguments.result, "w", encoding="utf-8") as file:
        json.dump({"ranges": ranges, "flood": count}, file)
    print("done", flush=True)
    input()


if __name__ == "__main__":
    main()
