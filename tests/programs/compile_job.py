"""A torch.compile job that tells at its end what it compiled, when, and at what CPU cost.

    compile_job.py OUT.json [--backend inductor] [--unwrapped] [--no-wait]

Trace ids: 0/0 forward and lazy backward, 0/1 the same function recompiled for another shape, 1/0
with a graph break (attempts 0 and 1; on a second thread), 2/0 its resume function.

Prints `ready <pid>` after torch is imported, waits for a line on stdin, compiles, writes OUT.json:

    {"pid", "torch", "python",
     "metrics": rows of torch._dynamo.utils.get_compilation_metrics(),
     "compiles": [{"id", "kind", "tid", "begin", "end", "cpu_ns", "attempts": [[begin, end], ...]}],
     "contexts": [{"tid", "begin", "end"}, ...]}

`compiles` comes from wrappers around `_compile`, the lazy backward's get_or_compile and, once per
attempt, transform_code_object; `contexts` from one around the compile_context in which `_compile`
is called: between its ends the thread has a trace id, from a moment before `_compile` to a moment
after it. Times are CLOCK_MONOTONIC, cpu_ns that thread's CPU clock. With --unwrapped nothing of
torch is touched and both are empty.
"""

import argparse
import contextlib
import dataclasses
import functools
import json
import os
import platform
import sys
import threading
from time import monotonic_ns, thread_time_ns

import torch
import torch._dynamo.convert_frame as convert_frame
import torch._dynamo.utils as dynamo_utils
from torch._functorch._aot_autograd import runtime_wrappers

COMPILES, CONTEXTS = [], []
OPEN = threading.local()  # .row: the compile open on this thread


def timed(function, identify):
    """`function`, logged as a compile when identify(arguments) gives (id, kind)."""

    @functools.wraps(function)
    def with_clocks(*args, **kwargs):
        identity = identify(*args, **kwargs)
        if identity is None:
            return function(*args, **kwargs)
        row = {"id": identity[0], "kind": identity[1], "tid": threading.get_native_id()}
        row["attempts"] = []
        outer, OPEN.row = getattr(OPEN, "row", None), row
        cpu = thread_time_ns()
        row["begin"] = monotonic_ns()
        try:
            return function(*args, **kwargs)
        finally:
            row["end"] = monotonic_ns()
            row["cpu_ns"] = thread_time_ns() - cpu
            OPEN.row = outer
            COMPILES.append(row)

    return with_clocks


def install_clocks():
    def forward(*_, compile_id, **__):
        return str(compile_id), "forward"

    convert_frame._compile = timed(convert_frame._compile, forward)

    enter = convert_frame.compile_context

    @contextlib.contextmanager
    def compile_context(context):
        row = {"tid": threading.get_native_id(), "begin": monotonic_ns()}
        try:
            with enter(context):
                yield context
        finally:
            row["end"] = monotonic_ns()
            CONTEXTS.append(row)

    convert_frame.compile_context = compile_context

    compiler = runtime_wrappers._AutogradBackwardCompiler

    def backward(self, **_):
        if self.compiled_bw is not None:  # compiled before: nothing happens
            return None
        return str(self.lazy_backward_info.saved_compile_context.compile_id), "backward"

    compiler.get_or_compile = timed(compiler.get_or_compile, backward)

    transform = convert_frame.transform_code_object

    @functools.wraps(transform)
    def attempt(*args, **kwargs):
        window = [monotonic_ns(), 0]
        OPEN.row["attempts"].append(window)
        try:
            return transform(*args, **kwargs)
        finally:
            window[1] = monotonic_ns()

    convert_frame.transform_code_object = attempt


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.up = torch.nn.Linear(width, 4 * width)
        self.down = torch.nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


class Model(torch.nn.Module):
    def __init__(self, width=32, depth=10):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block(width) for _ in range(depth))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x.square().mean()


def broken(x):
    y = torch.sin(x) + 1
    print("a graph break", flush=True)
    return torch.cos(y) * 2


def run(backend):
    model = Model()
    compiled = torch.compile(model, backend=backend)
    for rows in (8, 8, 12, 12):
        model.zero_grad()
        compiled(torch.randn(rows, 32)).backward()

    def on_a_thread():
        torch.compile(broken, backend=backend)(torch.randn(64))

    thread = threading.Thread(target=on_a_thread, name="second")
    thread.start()
    thread.join()


def plain(value):
    if isinstance(value, (set, frozenset, list, tuple)):
        return sorted((plain(item) for item in value), key=str)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)


def metrics_rows():
    rows = []
    for row in dynamo_utils.get_compilation_metrics():
        fields = {field.name: getattr(row, field.name) for field in dataclasses.fields(row)}
        rows.append({name: plain(value) for name, value in fields.items() if value is not None})
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--unwrapped", action="store_true")
    parser.add_argument("--no-wait", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if not options.unwrapped:
        install_clocks()

    print("ready", os.getpid(), flush=True)
    if not options.no_wait:
        sys.stdin.readline()
    run(options.backend)

    truth = {
        "pid": os.getpid(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "metrics": metrics_rows(),
        "compiles": COMPILES,
        "contexts": CONTEXTS,
    }
    with open(options.out + ".part", "w", encoding="utf-8") as file:
        json.dump(truth, file, indent=1)
    os.replace(options.out + ".part", options.out)
    print("done", flush=True)


if __name__ == "__main__":
    main()
