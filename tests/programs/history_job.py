"""A torch.compile job that tells what torch itself remembers of it, and then stands still.

    history_job.py OUT.json

Every way to end up in torch's records: training through Inductor, recompiles, graph breaks with and
without a restart, a backend that fails, one that makes no CUDA graph, a recompile limit, strict export,
compiled autograd, and a torch._dynamo.reset() after which ids begin again. Prints `ready` when OUT.json is there:

    {"metrics": rows of _compilation_metrics, "times": compilation_time_metrics,
     "times_str", "times_csv": compile_times(), "counters", "frames": FRAME_COUNTER,
     "breaks": [{"reason", "stack": [[file, line, name]], "id": the compile it happened in}],
     "clock": [CLOCK_REALTIME, CLOCK_MONOTONIC]}
"""
import dataclasses
import json
import sys
import time

import torch
import torch._dynamo.utils as utils
from torch._dynamo import convert_frame, output_graph
from torch._guards import CompileContext
from torch._inductor.cudagraph_utils import log_cudagraph_skip_and_bump_counter

BREAK_IDS = []
note_break = output_graph.GraphCompileReason.__post_init__


def note(self):
    note_break(self)
    if self.graph_break:
        BREAK_IDS.append(str(CompileContext.current_compile_id()))


output_graph.GraphCompileReason.__post_init__ = note
eager = torch.compile(backend="aot_eager")


@eager
def before_reset(x):
    print("before the reset")
    return x + 1


@eager
def breaks(x):
    y = x + 1
    print("a graph break")
    return y * 2


@torch.compile
def train(x, w):
    return (x @ w).sin().sum()


@torch.compile
def infer(x):
    return x.cos() + 1


class Jumps(torch.nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x + 1
        return x - 1


class JumpsToo(torch.nn.Module):
    def forward(self, x):
        x = x * 2
        if x.mean() > 0:
            return x + 1
        return x - 1


def outer(x):
    return helper(x) + 1


def helper(x):
    x = x * 2
    if x.sum() > 0:
        return x
    return -x


def failing_backend(graph, inputs):
    raise RuntimeError("no\nbackend")


@torch.compile(backend=failing_backend)
def fails(x):
    return x.sin()


def backend_without_cuda_graphs(graph, inputs):
    log_cudagraph_skip_and_bump_counter("skipping cudagraphs due to mutated inputs")  # as Inductor does on a GPU
    return graph.forward


@torch.compile(backend=backend_without_cuda_graphs)
def mutates(x):
    return x.add_(1)


@eager
def limited(x, kind):
    return x + (1 if kind is None else 2)


def backward_with_compiled_autograd():
    x = torch.ones(3, requires_grad=True)
    with torch._dynamo.compiled_autograd._enable(eager):
        (x * x).sum().backward()


def run():
    torch.export.export(Doubles(), (torch.ones(3),), strict=True)
    before_reset(torch.ones(2))
    torch._dynamo.reset()
    BREAK_IDS.clear()
    breaks(torch.ones(3))
    w = torch.ones(4, 4, requires_grad=True)
    train(torch.ones(2, 4), w).backward()
    infer(torch.ones(5))
    mutates(torch.ones(7))
    breaks(torch.ones(5, 5))
    for module in (Jumps(), JumpsToo()):
        torch.compile(module, backend="aot_eager")(torch.ones(3))
    torch.compile(outer, backend="aot_eager")(torch.ones(3))
    with torch._dynamo.config.patch(suppress_errors=True):
        fails(torch.ones(3))
    with torch._dynamo.config.patch(recompile_limit=2):
        for kind in (None, "a", "b", "c"):
            limited(torch.ones(3), kind)
    backward_with_compiled_autograd()


class Doubles(torch.nn.Module):
    def forward(self, x):
        return x * 2


def plain(value):
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    return value


def main():
    run()
    breaks_found = [
        {"reason": r.reason, "stack": [[f.filename, f.lineno, f.name] for f in r.user_stack], "id": i}
        for r, i in zip(utils.graph_break_reasons, BREAK_IDS, strict=True)
    ]
    truth = {
        "metrics": [
            {f.name: plain(getattr(row, f.name)) for f in dataclasses.fields(row)}
            for row in utils._compilation_metrics
        ],
        "times": utils.compilation_time_metrics,
        "times_str": utils.compile_times("str"),
        "times_total": utils.compile_times("str", aggregate=True),
        "times_csv": utils.compile_times("csv"),
        "counters": utils.counters,
        "frames": convert_frame.FRAME_COUNTER,
        "breaks": breaks_found,
        "clock": [time.time_ns(), time.monotonic_ns()],
    }
    with open(sys.argv[1], "w") as out:
        json.dump(truth, out)
    print("ready", flush=True)
    time.sleep(3600)


main()
