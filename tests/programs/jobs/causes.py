"""A function for each cause that the report has a suggestion for: causes.py OUT.json

They are named as the rules are (symbolizer/report/suggestions.cpp). The backend runs graphs as they are.
"""

import logging
import os
import sys
import types

import account
import torch

RECOMPILES, BREAKS = {}, {}
LOGGER = logging.getLogger("causes")


def recompiles(function):
    RECOMPILES[function.__name__.replace("_", "-").rstrip("-")] = function
    return function


def breaks(function):
    BREAKS[function.__name__.replace("_", "-").rstrip("-")] = function
    return function


def compiled(function):
    return torch.compile(function, backend="eager", dynamic=False)


def calculate(x):
    return x.sin() + 1


def call_with(*inputs):
    """A copy of `calculate` for each caller, with its name, compiled for these inputs one after the other."""
    code = calculate.__code__.replace(co_name=sys._getframe(1).f_code.co_name)
    run = compiled(types.FunctionType(code, globals()))
    for x in inputs:
        run(x)


# ---- what compiles again -------------------------------------------------------------------------


@recompiles
def one_dimension():
    call_with(torch.ones(4, 8), torch.ones(4, 9))


@recompiles
def several_dimensions():
    call_with(torch.ones(4, 8), torch.ones(4, 9), torch.ones(5, 9))


@recompiles
def rank():
    call_with(torch.ones(4), torch.ones(4, 4))


@recompiles
def dtype():
    call_with(torch.ones(4), torch.ones(4, dtype=torch.float64))


@recompiles
def stride():
    call_with(torch.ones(4, 4), torch.ones(4, 8)[:, ::2])


@recompiles
def requires_grad():
    call_with(torch.ones(4), torch.ones(4, requires_grad=True))


@recompiles
def dispatch_keys():
    with torch.inference_mode():
        without_autograd = torch.ones(4)
    call_with(torch.ones(4), without_autograd)


@recompiles
def global_state():
    @compiled
    def changes(x):
        return x.cos() + 1

    changes(torch.ones(4))
    with torch.no_grad():
        changes(torch.ones(4))


@recompiles
def module_integer():
    class Counted(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.steps = 1

        def forward(self, x):
            return x * self.steps

    module = Counted()
    run = torch.compile(module, backend="eager", dynamic=False)
    for steps in (1, 2):
        module.steps = steps
        run(torch.ones(4))


@recompiles
def identity():
    @compiled
    def changes(x, how):
        return how(x) + 1

    for how in (torch.sin, torch.cos):
        changes(torch.ones(4), how)


@recompiles
def length():
    @compiled
    def changes(xs):
        return sum(xs) + 1

    for count in (2, 3):
        changes([torch.ones(4)] * count)


@recompiles
def constant():
    @compiled
    def changes(x, how):
        return x + 1 if how == "up" else x - 1

    for how in ("up", "down"):
        changes(torch.ones(4), how)


# ---- what breaks the graph -----------------------------------------------------------------------


@breaks
def graph_break_call(x):
    torch._dynamo.graph_break()
    return x + 1


@breaks
def print_(x):
    print(end="")
    return x + 1


@breaks
def logger(x):
    LOGGER.info("a step")
    return x + 1


@breaks
def item(x):
    return x * x.sum().item()


@breaks
def dynamic_output(x):
    return torch.nonzero(x) + 1


@breaks
def branch(x):
    if x.sum() > 0:
        return x + 1
    return x - 1


@torch.compiler.disable
def not_traced(x):
    return x + 1


@breaks
def disabled(x):
    return not_traced(x) * 2


@breaks
def skipped(x):
    os.getpid()
    return x + 1


def main():
    account.wait_for_word()
    for cause in RECOMPILES.values():
        cause()
    for cause in BREAKS.values():
        compiled(cause)(torch.ones(4) + 1)
    account.write(sys.argv[1], recompiles=list(RECOMPILES), broke=list(BREAKS))


main()
