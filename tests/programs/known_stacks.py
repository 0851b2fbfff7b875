"""A target whose every stack is known: it keeps a fixed call path for a while, and says which.

    known_stacks.py OUT.json [--seconds S] [--phases a,b,...] [--no-wait]

Prints `ready <pid>`, waits for a line on stdin, then runs its phases. In each one some leaf burns
CPU between two CLOCK_MONOTONIC stamps that it takes itself, so that during [begin, end] its
thread's stack is exactly the one recorded after the loop, from the frames themselves. OUT.json is

    {"python": ..., "pid": ..., "phases": [{"phase", "tid", "begin", "end", "cpu_ns",
     "leaf_lines": [first, last], "stack": [[function, file, line], ...] root first}, ...]}

The leaf's line is free within `leaf_lines`; every other frame's line is that of its call. The phase
`transitions` has no `stack` but `stacks`: lists of function names, one of which it always is.
"""

import argparse
import asyncio
import functools
import json
import operator
import os
import re
import sys
import threading
from time import monotonic_ns, thread_time_ns

import known_code
from stack_log import Log, stack_of

LOG = None


def burn(phase, seconds=None):
    """The usual leaf."""
    length = int((LOG.seconds if seconds is None else seconds) * 1e9)
    first = sys._getframe().f_lineno + 2
    cpu = thread_time_ns()
    begin = now = monotonic_ns()
    while now < begin + length:
        now = monotonic_ns()
    end = monotonic_ns()
    cpu = thread_time_ns() - cpu
    LOG.add(phase, stack_of(sys._getframe()), begin, end, cpu, [first, first + 3])
    return 0


# ---- plain nesting, distinct functions, calls of many shapes and far-apart lines -----------------

SHAPES = (
    "def {me}():\n    return {call}()\n",
    "def {me}():\n    value = 1\n    value += {call}()\n    return value\n",
    "def {me}():\n    return max(\n        1,\n        2,\n        {call}(),\n        3,\n    )\n",
    "def {me}():\n    return (\n        {call}(\n        )\n    )\n",
    "def {me}():\n    try:\n        return {call}()\n    finally:\n        len('')\n",
    "def {me}():\n    for _ in range(1):\n        if _ == 0:\n            {call}()\n    return 1\n",
    "def {me}():\n    if len('') == 1:\n        pass\n" + "\n" * 300 + "    return {call}()\n",
    "def {me}(a=1, *, b=2):\n    # comment\n    x = [a, b,\n         {call}()]\n    return x[-1]\n",
)


def write_nested(depth, directory):
    """A module file of `depth` distinct functions, each calling the next."""
    parts = []
    for level in range(depth):
        call = f"level_{level + 1:02d}" if level + 1 < depth else "leaf"
        parts.append(SHAPES[level % len(SHAPES)].format(me=f"level_{level:02d}", call=call))
    path = os.path.join(directory, "nested.py")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n\n".join(parts))
    return path


def phase_nested():
    path = write_nested(60, os.path.dirname(os.path.abspath(OUT)))
    namespace = {"leaf": functools.partial(burn, "nested")}
    with open(path, encoding="utf-8") as file:
        exec(compile(file.read(), path, "exec"), namespace)
    namespace["level_00"]()


# ---- generators, coroutines ----------------------------------------------------------------------


def delegate(depth):
    if depth == 0:
        yield burn("generators")
    else:
        yield from delegate(depth - 1)


def pull(source):
    for item in source:
        yield item


def phase_generators():
    chain = pull(pull(x for x in delegate(20)))
    return list(chain)


async def await_down(depth):
    if depth:
        return await await_down(depth - 1)
    await asyncio.sleep(0)
    return burn("coroutines")


async def async_items():
    yield 1
    yield burn("async_generators")


async def gather_all():
    await asyncio.gather(await_down(10))
    async for _ in async_items():
        pass
    return [item async for item in async_items()]


def phase_coroutines():
    asyncio.run(gather_all())


# ---- recursion -----------------------------------------------------------------------------------


def recurse(depth, phase):
    if depth == 0:
        return burn(phase)
    return recurse(depth - 1, phase) + 1


def odd(depth, phase):
    return burn(phase) if depth == 0 else (
        even(depth - 1, phase))


def even(depth, phase):
    return burn(phase) if depth == 0 else odd(depth - 1, phase)


def hop(depth, phase):
    """Every call through C: from 3.12 on each makes one more frame, of no function."""
    return list(map(hop, [depth - 1], [phase])) if depth else burn(phase)


def phase_recursion():
    recurse(900, "recursion_900")
    odd(450, "recursion_mutual")
    hop(700, "recursion_through_c")


def own_depth():
    depth, frame = 0, sys._getframe(1)
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    return depth


def phase_deep():
    sys.setrecursionlimit(4000)
    # 1,024 frames in all, the deepest stack that is promised whole: these, `recurse` and `burn`.
    recurse(1024 - own_depth() - 2, "depth_1024")
    recurse(2500, "depth_2500")


# ---- threads -------------------------------------------------------------------------------------


def worker_a():
    def inner():
        return burn("threads")

    return inner()


def worker_b(depth):
    return worker_b(depth - 1) if depth else burn("threads")


class Worker(threading.Thread):
    def run(self):
        return sorted([1], key=self.key)

    def key(self, _):
        return burn("threads")


def phase_threads():
    threads = [
        threading.Thread(target=worker_a),
        threading.Thread(target=worker_b, args=(30,)),
        Worker(),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# ---- Python called back from C -------------------------------------------------------------------


class Overloaded:
    """Slots and descriptors: C calls back into Python."""

    def __init__(self, phase):
        burn(phase)

    def __eq__(self, other):
        burn("c_slot_eq")
        return True

    def __getattr__(self, name):
        burn("c_slot_getattr")
        return name

    @property
    def item(self):
        return burn("c_property")

    def __iter__(self):
        return self

    def __next__(self):
        burn("c_slot_next")
        raise StopIteration


def phase_c_callbacks():
    short = LOG.seconds / 2
    sorted([1], key=lambda _: burn("c_sorted_key", short))
    [2].sort(key=functools.partial(lambda phase, _: burn(phase, short), "c_list_sort_partial"))
    list(map(lambda phase: burn(phase, short), ["c_map"]))
    functools.reduce(lambda left, right: burn("c_reduce", short), [1, 2])
    functools.partial(functools.partial(burn, "c_partial"), short)()
    re.sub("x", lambda match: str(burn("c_re_sub", short)), "x")
    operator.methodcaller("__call__", "c_methodcaller", short)(burn)
    thing = Overloaded("c_type_call")
    _ = thing == 1
    _ = thing.missing
    _ = thing.item
    list(thing)

    # C within C within Python, three times over.
    def nest(depth):
        if depth == 0:
            return burn("c_nested")
        return sorted([depth - 1], key=lambda level: max(map(nest, [level])))[0]

    nest(12)


# ---- the rest of the syntax ----------------------------------------------------------------------


def decorate(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


@decorate
@functools.lru_cache(maxsize=None)
@decorate
def decorated():
    return burn("decorators")


class Context:
    def __enter__(self):
        burn("with_enter")
        return self

    def __exit__(self, kind, value, traceback):
        burn("with_exit")
        return True


def phase_syntax():
    class Body:
        value = burn("class_body")

        def method(self):
            return (lambda: [burn("lambda_comprehension") for _ in (1,)])()

    Body().method()
    decorated()
    with Context():
        raise ValueError("in flight")
    {key: burn("dict_comprehension") for key in (1,)}
    {burn("set_comprehension") for _ in (1,)}
    list(burn("generator_expression") for _ in (1,))
    try:
        try:
            raise KeyError("one")
        finally:
            burn("finally_in_flight")
    except KeyError:
        burn("except_handler")
    f"{burn('f_string')}"
    eval("burn('eval')")
    exec("burn('exec')")


# ---- calls and returns, at full speed ------------------------------------------------------------


def same(x):
    return x


def through(x):
    return same(x)


def produce(count):
    for number in range(count):
        yield same(number)


NUMBERS = list(range(20))


def hurry(length):
    """Enters and leaves frames all the time; any sample must still show a stack there can be."""
    cpu = thread_time_ns()
    begin = monotonic_ns()
    while monotonic_ns() < begin + length:
        list(map(through, NUMBERS))
        sorted(NUMBERS, key=same)
        sum(produce(20))
        for number in NUMBERS:
            through(number)
    end = monotonic_ns()
    cpu = thread_time_ns() - cpu
    own = [function for function, _, _ in stack_of(sys._getframe())]
    below = [[], ["through"], ["through", "same"], ["same"], ["produce"], ["produce", "same"]]
    LOG.add("transitions", None, begin, end, cpu, None)
    LOG.entries[-1]["stacks"] = [own + names for names in below]


def phase_transitions():
    hurry(int(LOG.seconds * 10e9))


# ---- the order of events -------------------------------------------------------------------------

PHASES = {
    "nested": phase_nested,
    "generators": phase_generators,
    "coroutines": phase_coroutines,
    "recursion": phase_recursion,
    "deep": phase_deep,
    "threads": phase_threads,
    "c_callbacks": phase_c_callbacks,
    "syntax": phase_syntax,
    "transitions": phase_transitions,
    "twins": lambda: known_code.phase_twins(LOG),
    "reuse": lambda: known_code.phase_reuse(LOG),
}


def main():
    global LOG, OUT
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--seconds", type=float, default=0.4)
    parser.add_argument("--phases", default=",".join(PHASES))
    parser.add_argument("--no-wait", action="store_true")
    options = parser.parse_args()
    LOG, OUT = Log(options.seconds), options.out

    print("ready", os.getpid(), flush=True)
    if not options.no_wait:
        sys.stdin.readline()
    for name in options.phases.split(","):
        PHASES[name]()

    truth = {"python": sys.version.split()[0], "pid": os.getpid(), "phases": LOG.entries}
    with open(options.out + ".part", "w", encoding="utf-8") as file:
        json.dump(truth, file)
    os.replace(options.out + ".part", options.out)
    print("done", flush=True)


if __name__ == "__main__":
    main()
