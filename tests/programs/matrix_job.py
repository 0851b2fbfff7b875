"""Tiny jobs of every kind that torch.compile can be asked for, and what torch itself says of them.

    matrix_job.py OUT.json --scenario NAME [--scenario NAME ...]

Prints `ready <pid>`, waits for a line on stdin, runs the scenarios in order in this one process, writes
OUT.json, prints `done`, and waits for one more line:

    {"pid", "file": this one, "threads": {function: native id of its thread, if not the main one},
     "metrics": rows of torch._dynamo.utils._compilation_metrics without what is None,
     "breaks": [{"reason", "stack": [[file, line, function], ...], "id", "attempt", "tid", "time_us"}],
     "remembered": how many of these graph_break_reasons still has,
     "times": {name: calls} of compilation_time_metrics, "counters",
     "errors": {scenario: what it raised}, "captures": compiled autograd's, by torch's count}

`breaks` is kept as torch appends to graph_break_reasons, with the compile that is open by its CompileContext:
torch._dynamo.reset() empties that list, and it has no id. Nothing else of torch is touched. Functions of
different scenarios have different names.
"""

import argparse
import dataclasses
import json
import os
import sys
import threading
import time

import torch
import torch._dynamo.utils as dynamo_utils
from torch._dynamo import compiled_autograd, output_graph
from torch._guards import CompileContext

BREAKS = []
ERRORS = {}
THREADS = {}
note_break = output_graph.GraphCompileReason.__post_init__


def note(self):
    note_break(self)
    if self.graph_break:
        context = CompileContext.get()
        BREAKS.append(
            {
                "reason": self.reason,
                "stack": [[frame.filename, frame.lineno, frame.name] for frame in self.user_stack],
                "id": str(context.compile_id),
                "attempt": context.attempt,
                "tid": threading.get_native_id(),
                "time_us": time.time_ns() // 1000,
            }
        )


output_graph.GraphCompileReason.__post_init__ = note


class Mlp(torch.nn.Module):
    def __init__(self, layers=4):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(layers))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


# ---- Dynamo and AOTAutograd ----------------------------------------------------------------------


def warm_up():
    """A thread is watched from its first compile on: what is lost of that one is lost of this."""
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))


def mlp_inference():
    with torch.no_grad():
        torch.compile(Mlp(), backend="eager")(torch.ones(2, 8))


def training():
    @torch.compile(backend="aot_eager")
    def trained(x, w):
        return torch.tanh(x @ w).square().mean()

    w = torch.ones(8, 8, requires_grad=True)
    for _ in range(2):
        trained(torch.ones(4, 8), w).backward()


def graph_breaks():
    @torch.compile(backend="aot_eager")
    def printing(x):
        y = torch.sin(x)
        print(end="")
        return torch.cos(y)

    @torch.compile(backend="eager")
    def jumping(x):
        y = x * 2
        if y.sum() > 0:
            y = y + 1
        print(end="")
        return y - 1

    printing(torch.ones(3))
    jumping(torch.ones(3))


def shapes():
    @torch.compile(backend="aot_eager", dynamic=False)
    def shaped(x):
        return torch.relu(x) + 1

    for rows in (2, 3, 4):
        shaped(torch.ones(rows, 4))


def dynamic_shapes():
    @torch.compile(backend="eager")
    def automatic(x):
        return x * 3 - 1

    @torch.compile(backend="aot_eager", dynamic=True)
    def symbolic(x):
        return x.sum(0) * x.shape[0]

    for rows in (5, 6, 7):
        automatic(torch.ones(rows, 4))
        symbolic(torch.ones(rows, 4))


def compiled_backward():
    def cubed(x):
        return (x * x * x).sum()

    x = torch.ones(3, requires_grad=True)
    with compiled_autograd._enable(torch.compile(backend="aot_eager")):
        cubed(x).backward()


def broken_backend(graph, inputs):
    raise RuntimeError("this backend\nfails")


def failing_backend():
    def doomed(x):
        return torch.sin(x) + 1

    torch.compile(doomed, backend=broken_backend)(torch.ones(5))


def suppressed_errors():
    def rescued(x):
        return torch.cos(x) + 1

    with torch._dynamo.config.patch(suppress_errors=True):
        torch.compile(rescued, backend=broken_backend)(torch.ones(5))


def two_threads():
    begin = threading.Barrier(2)

    def left(x):
        return Mlp.forward(left.model, x).sum()

    def right(x):
        return Mlp.forward(right.model, x).sum()

    def run(function):
        function.model = Mlp(6)
        THREADS[function.__name__] = threading.get_native_id()
        compiled = torch.compile(function, backend="aot_eager")
        begin.wait()
        compiled(torch.ones(2, 8)).backward()

    threads = [threading.Thread(target=run, args=(function,)) for function in (left, right)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def reset_and_again():
    torch._dynamo.reset()

    def again(x):
        print(end="")
        return x + 4

    torch.compile(again, backend="aot_eager")(torch.ones(3))


# ---- Inductor ------------------------------------------------------------------------------------


def inductor_inference():
    @torch.compile
    def inferred(x):
        return x.cos() + 1

    with torch.no_grad():
        inferred(torch.ones(64))


def inductor_training():
    @torch.compile
    def learned(x, w):
        return (x @ w).sin().sum()

    learned(torch.ones(2, 4), torch.ones(4, 4, requires_grad=True)).backward()


def export_and_package():
    folder = os.path.dirname(os.path.abspath(OPTIONS.out))
    program = torch.export.export(Mlp(1), (torch.ones(2, 8),), strict=True)
    torch._inductor.aoti_compile_and_package(
        program,
        package_path=f"{folder}/model.pt2",
        inductor_configs={"aot_inductor.precompile_headers": False},
    )


# ---- what torch says -----------------------------------------------------------------------------


def plain(value):
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    return value if isinstance(value, (bool, int, float, str, dict, list)) else str(value)


def row_of(metrics):
    fields = {field.name: getattr(metrics, field.name) for field in dataclasses.fields(metrics)}
    return {name: plain(value) for name, value in fields.items() if value is not None}


def truth():
    counters = {name: dict(values) for name, values in dynamo_utils.counters.items()}
    return {
        "pid": os.getpid(),
        "file": __file__,
        "threads": THREADS,
        "metrics": [row_of(row) for row in dynamo_utils.get_compilation_metrics()],
        "breaks": BREAKS,
        "remembered": len(dynamo_utils.graph_break_reasons),
        "times": {name: len(v) for name, v in dynamo_utils.compilation_time_metrics.items()},
        "counters": counters,
        "errors": ERRORS,
        "captures": counters.get("compiled_autograd", {}).get("captures", 0),
    }


def main():
    print("ready", os.getpid(), flush=True)
    sys.stdin.readline()
    for name in OPTIONS.scenario:
        try:
            globals()[name]()
        except torch._dynamo.exc.TorchDynamoException as error:
            ERRORS[name] = type(error).__name__
    with open(OPTIONS.out, "w", encoding="utf-8") as file:
        json.dump(truth(), file, indent=1)
    print("done", flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    PARSER = argparse.ArgumentParser()
    PARSER.add_argument("out")
    PARSER.add_argument("--scenario", action="append", required=True)
    OPTIONS = PARSER.parse_args()
    torch.set_num_threads(1)
    main()
