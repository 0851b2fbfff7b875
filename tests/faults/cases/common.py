"""What the awkward targets share: the table of cases, compiled functions, and pacing."""

import ctypes
import os
import time

import torch

CASES = {}
# Above 200 runs of compiled regions a second their events end: stay below it.
RUNS_PER_SECOND = 80


def case(function):
    """`function(rounds)` is a target; what it returns must be the same in every run."""
    CASES[function.__name__] = function
    return function


def paced(rounds, per_second=RUNS_PER_SECOND):
    """Numbers below `rounds`: three quarters of them at a rate at which every event is sent, the rest as
    fast as can be, so that probes are removed while they are hit."""
    begin = time.monotonic()
    for number in range(rounds):
        if number < rounds * 3 // 4:
            time.sleep(max(0.0, begin + number / per_second - time.monotonic()))
        yield number


def compiled_step():
    """A compiled function with a compiled backward; a new one each time, so that it compiles."""

    @torch.compile(backend="aot_eager", dynamic=False)
    def step(x):
        return torch.tanh(x * 3).sum()

    return step


def warm_up():
    """One forward and backward compile, whose functions every case then runs beside what it does."""
    step = compiled_step()
    x = torch.ones(8, requires_grad=True)
    step(x).backward()
    return step, x


def native():
    return ctypes.CDLL(os.environ["FAULTS_NATIVE"] + "/stacks.so")


CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_int)
