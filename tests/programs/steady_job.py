"""Compiled regions that run a known number of times, for the tests and the benchmark of their counts.

    steady_job.py OUT.json [--fast SECONDS [--rate R] [--batches N]]

Prints `ready <pid>`, waits for a line on stdin, runs, writes OUT.json and prints `done`:

    {"calls": {"0": 470, "backward 1": 40, ...}, "batches": [{"calls", "seconds", "cpu_s"}, ...]}

Without --fast regions of several kinds run, less than 200 times a second in all. With it, one small region runs for so
many seconds, --batches times, R times a second or as often as it can; it is compiled and called once before `ready`.
Each batch waits for a line on stdin, and prints `batch` and its number. `cpu_s` is the CPU time of the calls.
"""

import argparse
import json
import os
import sys
import threading
import time

import torch

ARGUMENTS = argparse.ArgumentParser()
ARGUMENTS.add_argument("out")
ARGUMENTS.add_argument("--fast", type=float, default=0)
ARGUMENTS.add_argument("--rate", type=float, default=0)
ARGUMENTS.add_argument("--batches", type=int, default=1)
OPTIONS = ARGUMENTS.parse_args()


@torch.compile(backend="eager", dynamic=False)
def small(x):
    return x + 1


@torch.compile(backend="aot_eager")
def trained(x):
    return torch.tanh(x).sum()


@torch.compile(backend="eager")
def broken(x):
    x = torch.sin(x)
    print(end="")
    return torch.cos(x)


def paced(count, call):
    for _ in range(count):
        call()
        time.sleep(0.012)


def known_numbers():
    x = torch.ones(4)
    paced(300, lambda: small(x))  # 0/0
    wide = torch.ones(5)
    paced(50, lambda: small(wide))  # 0/1
    leaf = torch.ones(4, requires_grad=True)
    paced(40, lambda: trained(leaf).backward())  # 1/0, backward 1/0
    with torch.no_grad():
        paced(30, lambda: broken(x))  # 2/0, and what follows the break 3/0
    threads = [threading.Thread(target=paced, args=(60, lambda: small(x))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {
        "0": 300 + 50 + 2 * 60,
        "1": 40,
        "backward 1": 40,
        "2": 30,
        "3": 30,
    }


def batch(seconds, rate):
    block = 100
    x = torch.ones(4)
    calls = 0
    cpu = 0
    begin = time.monotonic()
    while time.monotonic() < begin + seconds:
        cpu -= time.thread_time()
        for _ in range(block):
            small(x)
        cpu += time.thread_time()
        calls += block
        if rate:
            time.sleep(max(0, begin + calls / rate - time.monotonic()))
    return {"calls": calls, "seconds": time.monotonic() - begin, "cpu_s": cpu}


def main():
    document = {"calls": {}, "batches": []}
    print("ready", os.getpid(), flush=True)
    if OPTIONS.fast:
        small(torch.ones(4))
        for _ in range(OPTIONS.batches):
            sys.stdin.readline()
            document["batches"].append(batch(OPTIONS.fast, OPTIONS.rate))
            print("batch", len(document["batches"]), flush=True)
    else:
        sys.stdin.readline()
        document["calls"] = known_numbers()
    with open(OPTIONS.out, "w") as file:
        json.dump(document, file)
    print("done", flush=True)
    sys.stdin.readline()


main()
