"""The phases of known_stacks.py whose code is made while they run: many code objects alike, and
code objects on the addresses of others that are gone."""

import array
import sys
import threading
from time import monotonic_ns, thread_time_ns

from stack_log import stack_of

TWIN = """
def {name}(length, clock, cpu_clock, own_stack):
    cpu = cpu_clock()
    begin = now = clock()
    while now < begin + length:
        now = clock()
    end = clock()
    return begin, end, cpu_clock() - cpu, own_stack and own_stack()
"""
TWIN_LINES = [4, 7]


def own_stack():
    """Its caller's stack: asked by the leaf itself, while every frame is still at its call."""
    return stack_of(sys._getframe(1))


def make(name, filename):
    namespace = {}
    exec(compile(TWIN.format(name=name), filename, "exec"), namespace)
    return namespace[name]


def run_one(twin, length=20_000_000):
    return twin(length, monotonic_ns, thread_time_ns, own_stack)


def phase_twins(log):
    """Alive together: one shape, one first line; only the name, or only the file, differs."""
    by_name = [make(f"twin_{i:03d}", "<generated>") for i in range(40)]
    by_file = [make("twin", f"<generated {i:03d}>") for i in range(40)]
    for _ in range(2):
        for phase, twins in (("twins_by_name", by_name), ("twins_by_file", by_file)):
            for twin in twins:
                begin, end, cpu, stack = run_one(twin, 6_000_000)
                log.add(phase, stack, begin, end, cpu, TWIN_LINES)


def identity_of(code):
    """What identifies a code object from outside without reading its strings."""
    return id(code), id(code.co_filename), id(code.co_name), id(code.co_linetable)


def choose(twins, last):
    """The one that is hardest to tell from the code that ran before at its address."""
    for twin in twins:
        identity = identity_of(twin.__code__)
        if last.get(identity[0]) == identity:
            return twin
    for twin in twins:
        if id(twin.__code__) in last:
            return twin
    return twins[0]


def reuse(log, phase, names, rounds=100, choices=60):
    """One code object after the other, each freed before the next is made, on addresses of earlier
    ones: of a handful made anew each round that one runs whose address ran before."""
    last = {}
    for i in range(rounds):
        twins = [make(*names(i * choices + j)) for j in range(choices)]
        twin = choose(twins, last)
        begin, end, cpu, stack = run_one(twin)
        identity = identity_of(twin.__code__)
        log.add(phase, stack, begin, end, cpu, TWIN_LINES)
        log.entries[-1]["reused"] = identity[0] in last
        log.entries[-1]["same_parts"] = last.get(identity[0]) == identity
        last[identity[0]] = identity
        del twins, twin


def reuse_many(log, phase, rounds=1000):
    """Short lives one after the other, nothing kept but numbers in a table made before: now and
    then not only the code's address comes again but also those of its file, name and line table."""
    columns = 7
    table = array.array("Q", bytes(8 * columns * (rounds + 1)))

    def one(row, asked):
        twin = make("many", "<many %05d>" % row)
        begin, end, cpu, stack = twin(3_000_000, monotonic_ns, thread_time_ns, asked)
        for i, value in enumerate((begin, end, cpu)):
            table[row * columns + i] = value
        for i, address in enumerate(identity_of(twin.__code__)):
            table[row * columns + 3 + i] = address
        return stack

    for row in range(rounds):
        one(row, None)
    stack = one(rounds, own_stack)  # the same path once more, to have its stack
    caller = stack[-3]
    caller[2] = caller[2] - 1  # ... but called from the loop, on the line above
    seen = set()
    for row in range(rounds):
        begin, end, cpu, *identity = table[row * columns : (row + 1) * columns]
        log.entries.append(
            {
                "phase": phase,
                "tid": threading.get_native_id(),
                "begin": begin,
                "end": end,
                "cpu_ns": cpu,
                "leaf_lines": TWIN_LINES,
                "stack": [*stack[:-1], ["many", "<many %05d>" % row, 0]],
                "same_parts": tuple(identity) in seen,
            }
        )
        seen.add(tuple(identity))


def phase_reuse(log):
    reuse(log, "reuse_by_name", lambda i: (f"once_{i:05d}", "<once>"))
    reuse(log, "reuse_by_file", lambda i: ("once", f"<once {i:05d}>"))
    reuse_many(log, "reuse_many")
