"""Compiles of many kinds, quick ones (no Inductor), for the tests of exact events.

    exact_job.py OUT.json [--import-late] [--pause SECONDS]

Prints `ready <pid>`, waits for a line on stdin, compiles, writes OUT.json and prints `done`:

    {"pid", "tids": {"main", "second"}, "metrics": rows of get_compilation_metrics(),
     "inlined": [[function, first line, caller or null, primitive], ...] of dynamo_profiler}

With --import-late torch is imported after `ready`. With --pause the thread does nothing for so long
between two of its compiles. Functions are traced twice: first with torch's own
profiler of inlined calls off (that is what is compared), then, after a reset, with it on. Ids begin anew at a reset.
"""

import argparse
import json
import os
import sys
import threading
import time

ARGUMENTS = argparse.ArgumentParser()
ARGUMENTS.add_argument("out")
ARGUMENTS.add_argument("--import-late", action="store_true")
ARGUMENTS.add_argument("--pause", type=float, default=0)
OPTIONS = ARGUMENTS.parse_args()


def wait_for_start():
    print("ready", os.getpid(), flush=True)
    sys.stdin.readline()


if OPTIONS.import_late:
    wait_for_start()

import torch  # noqa: E402
import torch._dynamo  # noqa: E402
import torch._dynamo.dynamo_profiler as dynamo_profiler  # noqa: E402
import torch._dynamo.utils as dynamo_utils  # noqa: E402

if not OPTIONS.import_late:
    wait_for_start()

# ---- what is traced ------------------------------------------------------------------------------


def leaf(x, n):
    return x * n


def numbers(n):
    for i in range(n):
        yield i


def recursive(x, n):
    return x if n == 0 else recursive(leaf(x, n), n - 1)


def catches(x):
    try:
        for i in numbers(3):
            x = leaf(x, i)
        raise ValueError
    except ValueError:
        x = leaf(x, 7)
    return x


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x):
        return torch.relu(self.linear(leaf(x, 2)))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block() for _ in range(6))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        x = recursive(x, 4)
        x = catches(x)
        return leaf(x, 3) + sum(numbers(4))


def trace_model():
    torch.compile(Model(), backend="eager", fullgraph=True)(torch.randn(2, 8))


# ---- kinds of compiles ---------------------------------------------------------------------------


def trains_and_recompiles():
    @torch.compile(backend="aot_eager", dynamic=False)
    def step(x):
        return torch.tanh(leaf(x, 3)).sum()

    for rows in (2, 3, 4):
        step(torch.randn(rows, 8, requires_grad=True)).backward()


def breaks_the_graph():
    @torch.compile(backend="aot_eager")
    def broken(x):
        x = torch.sin(x)
        print(end="")
        return torch.cos(x)

    broken(torch.randn(4))


def fails_and_falls_back():
    def backend(graph, inputs):
        raise RuntimeError("this backend fails")

    torch._dynamo.config.suppress_errors = True
    try:
        torch.compile(lambda x: torch.sin(x) + 1, backend=backend)(torch.randn(5))
    finally:
        torch._dynamo.config.suppress_errors = False


TIDS = {"main": threading.get_native_id()}


def on_a_second_thread():
    def run():
        TIDS["second"] = threading.get_native_id()

        @torch.compile(backend="aot_eager")
        def other(x):
            return torch.relu(leaf(x, 5)).sum()

        other(torch.randn(3, 3, requires_grad=True)).backward()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()


def profile_inlined_calls():
    """What torch's own profiler says about tracing the model."""
    timings = []

    def keep(state, output_file=None):
        timings[:] = state.timings

    torch._dynamo.reset()
    torch._dynamo.config.dynamo_profiler = True
    dynamo_profiler.DynamoProfilerState.dump_stats = keep
    trace_model()
    torch._dynamo.config.dynamo_profiler = False
    return [
        [timing.func_name, timing.firstlineno, timing.caller_func_name, timing.is_primitive_call]
        for timing in timings
    ]


def main():
    trace_model()  # while it runs, the thread is found to compile, and watched
    torch._dynamo.reset()
    trace_model()
    time.sleep(OPTIONS.pause)
    trains_and_recompiles()
    breaks_the_graph()
    fails_and_falls_back()
    on_a_second_thread()
    metrics = [
        {
            field: getattr(row, field, None)
            for field in (
                "start_time_us",
                "end_time_us",
                "duration_us",
                "is_forward",
                "co_name",
                "recompile_reason",
                "fail_type",
                "fail_reason",
                "dynamo_cumulative_compile_time_us",
                "aot_autograd_cumulative_compile_time_us",
                "backward_cumulative_compile_time_us",
            )
        }
        | {
            "compile_id": str(row.compile_id),
            "restart_reasons": sorted(row.restart_reasons or []),
        }
        for row in dynamo_utils.get_compilation_metrics()
    ]
    inlined = profile_inlined_calls()
    document = {"pid": os.getpid(), "tids": TIDS, "metrics": metrics, "inlined": inlined}
    with open(OPTIONS.out, "w") as file:
        json.dump(document, file)
    print("done", flush=True)
    sys.stdin.readline()


main()
