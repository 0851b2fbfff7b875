"""A compile that looks stuck: stuck.py OUT.json SECONDS

Its backend works for SECONDS without an end in sight. Prints `compiling` when that begins.
"""

import sys
import time

import account
import torch

SECONDS = float(sys.argv[2])


def endless(graph, inputs):
    print("compiling", flush=True)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        sum(range(1000))  # SPIN
    return graph.forward


def answer(x):
    return torch.nn.functional.gelu(x) * 2  # LAST


def main():
    account.wait_for_word()
    torch.compile(answer, backend=endless)(torch.ones(4))
    account.write(sys.argv[1])


main()
