"""A small job that has something for each part of a recording: two compiles of a function with an inlined call, their
backward, operators outside of them, and a range that it marks.

Prints "ready", works after a line on stdin, prints "done" and ends at another line.
"""

import sys
import time

import torch

WEIGHT = torch.ones(64, 64, requires_grad=True)


def inlined(x):
    return torch.relu(x @ WEIGHT)


@torch.compile
def f(x):
    return torch.softmax(inlined(x) + 1, dim=-1)


def main():
    torch.set_num_threads(1)
    print("ready", flush=True)
    sys.stdin.readline()
    for rows in (32, 48, 48):
        end = time.monotonic() + 1
        while time.monotonic() < end:
            with torch.profiler.record_function("step"):
                f(torch.ones(rows, 64)).sum().backward()
                torch.sort(torch.rand(10_000))
    print("done", flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()
