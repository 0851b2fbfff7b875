"""A target of tests/faults: runs the cases named, one after the other.

    awkward_job.py CASE[,CASE...] ROUNDS

Prints `ready`, waits for a line, and prints `begin CASE` and `end CASE RESULT` for each. What it prints and its
exit status depend on nothing but its arguments. Not for output: where it stands is on stderr.
"""

import os
import sys

import torch

from cases import exceptions, processes, stacks, tools  # noqa: F401
from cases.common import CASES


def main():
    names, rounds = sys.argv[1].split(","), int(sys.argv[2])
    torch.set_num_threads(1)
    torch._dynamo.config.recompile_limit = 1_000_000
    torch._dynamo.config.accumulated_recompile_limit = 1_000_000
    print("ready", flush=True)
    sys.stdin.readline()
    for name in names:
        print("begin", name, flush=True)
        print("end", name, CASES[name](rounds), flush=True)
    print("done", flush=True)
    sys.stderr.flush()
    os._exit(3)  # a status that nothing else gives, and nothing that threads cut short can change


main()
