"""User code of many shapes for Dynamo to trace, and what torch's own profiler says of it.

    traced_job.py OUT.json
    traced_job.py FOLDER --pstats

Everything is compiled with backend "eager": first once to warm up, then, after `ready <pid>` and a
line on stdin, ROUNDS times without and ROUNDS times with torch._dynamo.config.dynamo_profiler, in turn
and each after a reset, so that trace ids repeat. One function with a graph break (which torch's profiler
cannot stand) is compiled at the very end. Then it writes OUT.json and prints `done`:

    {"rounds": [[compile, ...], ...], "clocked": [{id: [[[name, file, first line], ns], ...]}, ...],
     "functions": [[[[[name, file, first line], bytes of bytecode, least depth], ...], ...], ...]}

`rounds` is from torch's profiler, a compile being the calls it noted, in order of their ends: [[name,
file, first line], caller the same way or null, primitive, cumtime_ns]. `clocked` is from clocks around
the same calls in the rounds without it, but for the first, in which nothing of torch is touched: per
trace id the time of each primitive call that was inlined.

With --pstats everything is compiled once, after one round to warm up, and torch writes the pstats file of
each compile itself: FOLDER/0_0.pstats and so on, by trace id. Nothing of torch is replaced.
"""

import collections
import contextlib
import functools
import json
import os
import queue
import sys
import threading
import time

import torch
import torch._dynamo
import torch._dynamo.dynamo_profiler as dynamo_profiler
import torch._dynamo.symbolic_convert as symbolic_convert
from torch._guards import CompileContext

ROUNDS = 4
INLINING = symbolic_convert.InliningInstructionTranslator
GENERATING = symbolic_convert.InliningGeneratorInstructionTranslator

# ---- what is traced ------------------------------------------------------------------------------


def leaf(x, n):
    return x * n


def recursive(x, n):
    return x if n == 0 else recursive(leaf(x, n), n - 1)


def even(x, n):
    return x if n == 0 else odd(x + n, n - 1)


def odd(x, n):
    return x if n == 0 else even(leaf(x, n), n - 1)


def numbers(n):
    for i in range(n):
        yield i


def squares(n):
    for i in numbers(n):
        yield i * i
    yield from numbers(2)


def generates(x):
    for i in numbers(3):
        x = leaf(x, i)
    first, *_ = squares(3)
    return x + sum(squares(3)) + first + sum(i for i in numbers(2))


def fails(x, depth):
    leaf(x, depth)
    if depth == 0:
        raise ValueError("nothing left")
    return fails(x, depth - 1)


def catches(x):
    try:
        x = fails(x, 2)
    except ValueError:
        x = leaf(x, 7)
    try:
        return fails(leaf(x, 1), 0)
    except (KeyError, ValueError):
        return x
    finally:
        x = leaf(x, 2)


@contextlib.contextmanager
def scaled(n):
    yield leaf(n, 2)


def decorated(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


@decorated
def with_wrapper(x, *, n=1):
    return leaf(x, n)


def makes_closures(x):
    def closure(y):
        return leaf(y, 3)

    return closure(closure(x))


def calls_callables(x):
    half = functools.partial(leaf, n=0.5)
    twice = lambda y: leaf(leaf(y, 2), 1)  # noqa: E731
    with scaled(2) as n:
        x = half(twice(x)) + n
    x = with_wrapper(makes_closures(x), n=2)
    return x + sum([(lambda i: i + 1)(i) for i in range(2)])


class Scale:
    def __init__(self, n):
        self.n = n

    @property
    def doubled(self):
        return self.n * 2

    def __call__(self, x):
        return leaf(x, self.doubled)


class Block(torch.nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
        self.inner = Block(depth - 1) if depth > 0 else None

    def forward(self, x):
        x = torch.relu(self.linear(leaf(x, 2)))
        return x if self.inner is None else self.inner(x)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block(i) for i in range(3))
        self.sequence = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh())

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return catches(generates(self.sequence(x)))


def plain(x):
    x = recursive(x, 4)
    x = even(x, 5)
    return Scale(3)(calls_callables(x))


def on_second(x):
    return recursive(leaf(x, 5), 2)


def again(x, n):
    return x if n == 0 else again(x + 1, n - 1)  # the compile's own function, inlined into itself


# ---- how -----------------------------------------------------------------------------------------


PSTATS = None  # the folder of --pstats, in the round that is written


def compiled(trace_id, function, *arguments):
    """The call that makes this compile."""
    if PSTATS is not None:
        torch._dynamo.config.dynamo_profiler = os.path.join(PSTATS, trace_id.replace("/", "_") + ".pstats")
    function(*arguments)


def to_compile(function):
    return torch.compile(function, backend="eager", fullgraph=True, dynamic=False)


def trace_in_main():
    compiled("0/0", to_compile(Model()), torch.randn(2, 8))
    step = to_compile(plain)
    for rows in (2, 3):
        compiled(f"1/{rows - 2}", step, torch.randn(rows, 8))
    compiled("2/0", to_compile(again), torch.randn(2), 3)


def trace_in_second():
    compiled("3/0", to_compile(on_second), torch.randn(3, 3))


class Second:
    """A thread that has compiled before the recording begins."""

    def __init__(self):
        self._work, self._done = queue.Queue(), queue.Queue()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        while True:
            function = self._work.get()
            function()
            self._done.put(None)

    def __call__(self, function):
        self._work.put(function)
        self._done.get()


SECOND = Second()
STATES = []  # of torch's profiler: one per compile, in order


def trace_all(profiled):
    torch._dynamo.reset()

    # The setting is a thread's own.
    def in_main():
        torch._dynamo.config.dynamo_profiler = profiled
        trace_in_main()
        torch._dynamo.config.dynamo_profiler = False

    def in_second():
        torch._dynamo.config.dynamo_profiler = profiled
        trace_in_second()
        torch._dynamo.config.dynamo_profiler = False

    in_main()
    SECOND(in_second)


def breaks_the_graph():
    @torch.compile(backend="eager")
    def broken(x):
        x = leaf(x, 2)
        print(end="")
        return leaf(recursive(x, 1), 3)

    broken(torch.randn(4))


def keep(state, output_file=None):
    """In place of DynamoProfilerState.dump_stats: it is called more than once per compile."""
    if state not in STATES:
        STATES.append(state)


def noted(state):
    def key(name, file, line):
        return None if name is None else [name, file, line]

    return [
        [
            key(timing.func_name, timing.filename, timing.firstlineno),
            key(timing.caller_func_name, timing.caller_filename, timing.caller_firstlineno),
            timing.is_primitive_call,
            timing.cumtime_ns,
        ]
        for timing in state.timings
    ]


@contextlib.contextmanager
def clocks():
    """Puts clocks around what torch profiles: every inlined call, and every step of a generator."""
    rows, open_ = collections.defaultdict(list), []

    def clocked(code, call):
        key = [code.co_name, code.co_filename, code.co_firstlineno]
        primitive = key not in open_
        open_.append(key)
        begin = time.monotonic_ns()
        try:
            result = call()
            if primitive:
                ns = time.monotonic_ns() - begin
                rows[str(CompileContext.current_compile_id())].append([key, ns])
            return result
        finally:
            open_.pop()

    inline_call, step = INLINING.inline_call, GENERATING.inline_call_

    def clocked_call(cls, parent, function, *args, **kwargs):
        return clocked(function.get_code(), lambda: inline_call(parent, function, *args, **kwargs))

    INLINING.inline_call = classmethod(clocked_call)
    GENERATING.inline_call_ = lambda self: clocked(self.f_code, lambda: step(self))
    try:
        yield rows
    finally:
        INLINING.inline_call = classmethod(inline_call.__func__)
        GENERATING.inline_call_ = step


def shapes(state):
    """Of each function: the size of its bytecode, and the least depth it was inlined at."""
    found = {}
    for timing in state.timings:
        key = timing.func_name, timing.filename, timing.firstlineno
        size, depth = found.get(key, (timing.bytecode_count, timing.inline_depth))
        found[key] = size, min(depth, timing.inline_depth)
    return [[key, *row] for key, row in found.items()]


def write_pstats(folder):
    global PSTATS
    trace_all(False)
    PSTATS = folder
    trace_all(True)


def main():
    if sys.argv[2:] == ["--pstats"]:
        write_pstats(sys.argv[1])
        return
    dynamo_profiler.DynamoProfilerState.dump_stats = keep
    trace_all(False)
    torch._dynamo.reset()
    print("ready", os.getpid(), flush=True)
    sys.stdin.readline()
    rounds, clocked, functions = [], [], []
    for number in range(ROUNDS):
        if number == 0:
            trace_all(False)
        else:
            with clocks() as rows:
                trace_all(False)
            clocked.append(rows)
        STATES.clear()
        trace_all(True)
        rounds.append([noted(state) for state in STATES])
        functions.append([shapes(state) for state in STATES])
    torch._dynamo.reset()
    breaks_the_graph()
    with open(sys.argv[1], "w") as file:
        json.dump({"rounds": rounds, "clocked": clocked, "functions": functions}, file)
    print("done", flush=True)


main()
