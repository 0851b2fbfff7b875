"""Marks ranges as programs do, and notes when: annotation_job.py RESULT --nvtx LIBRARY [--flood SECONDS].

It waits for a line, marks, writes RESULT (each range with the times of its clock right before and after each of its
two calls; the instructions of nvtxRangePushA before that line, after it and at the end), and ends at another line."""

import argparse
import ctypes
import json
import threading
import time

import torch

RANGES = 40


def now():
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def work():
    (torch.ones(64, 64) @ torch.ones(64, 64)).sum()


def mark(ranges, name, kind, begin, end):
    before_begin = now()
    begin(name)
    after_begin = now()
    yield
    before_end = now()
    end()
    after_end = now()
    ranges.append({"name": name, "kind": kind, "begin": [before_begin, after_begin], "end": [before_end, after_end]})


def record_function(ranges, name):
    recorder = torch.profiler.record_function(name)
    return mark(ranges, name, "record_function", lambda _: recorder.__enter__(),
                lambda: recorder.__exit__(None, None, None))


def itt(ranges, name):
    return mark(ranges, name, "ITT", torch.profiler.itt.range_push, torch.profiler.itt.range_pop)


def nvtx(library):
    return lambda ranges, name: mark(ranges, name, "NVTX", lambda text: library.nvtxRangePushA(text.encode()),
                                     library.nvtxRangePop)


class Attributes(ctypes.Structure):
    """nvtxEventAttributes_t of NVTX 3."""

    _fields_ = [("version", ctypes.c_uint16), ("size", ctypes.c_uint16), ("category", ctypes.c_uint32),
                ("color_type", ctypes.c_int32), ("color", ctypes.c_uint32), ("payload_type", ctypes.c_int32),
                ("reserved", ctypes.c_int32), ("payload", ctypes.c_uint64), ("message_type", ctypes.c_int32),
                ("message", ctypes.c_char_p)]


def nvtx_domain(library, domain):
    domain = ctypes.c_void_p(domain)

    def push(text):
        attributes = Attributes(version=3, size=ctypes.sizeof(Attributes), message_type=1, message=text.encode())
        library.nvtxDomainRangePushEx(domain, ctypes.byref(attributes))

    return lambda ranges, name: mark(ranges, name, "NVTX", push, lambda: library.nvtxDomainRangePop(domain))


def pushed_with_attributes(library):
    def push(text):
        attributes = Attributes(version=3, size=ctypes.sizeof(Attributes), message_type=1, message=text.encode())
        library.nvtxRangePushEx(ctypes.byref(attributes))

    return lambda ranges, name: mark(ranges, name, "NVTX", push, library.nvtxRangePop)


def started(library):
    """It ends on another thread."""

    def end():
        thread = threading.Thread(target=library.nvtxRangeEnd, args=(ctypes.c_uint64(0),))
        thread.start()
        thread.join()

    return lambda ranges, name: mark(ranges, name, "NVTX", lambda text: library.nvtxRangeStartA(text.encode()), end)


def overlapping(library):
    """Which of the two ends first is not to be seen from outside."""
    ranges = []
    first, second = started(library)(ranges, "overlapping 1"), started(library)(ranges, "overlapping 2")
    for one in (first, second, first, second):
        next(one, None)
        work()
    return ranges


def crossed(ranges, *ways):
    """Ranges of different domains end in the order of their begins."""
    marks = [way(ranges, f"crossed {number}") for number, way in enumerate(ways)]
    for _ in range(2):
        for one in marks:
            next(one, None)
            work()


def nested(ranges, step, way):
    outer, inner = way(ranges, "step"), way(ranges, f"inner {step}")
    next(outer)
    work()
    next(inner)
    work()
    next(inner, None)
    next(outer, None)


def flood(library, seconds):
    """As many NVTX ranges as it can mark in that much CPU time, which others on the machine do not take."""
    begin, end, count = time.process_time(), 0, 0
    push, pop = library.nvtxRangePushA, library.nvtxRangePop
    while end < begin + seconds:
        for _ in range(1000):
            push(b"flood")
            pop()
        count += 1000
        end = time.process_time()
    return {"count": count, "seconds": end - begin}


def instructions(library):
    """The kernel writes a breakpoint over the first one while it is probed."""
    return ctypes.string_at(ctypes.cast(library.nvtxRangePushA, ctypes.c_void_p).value, 8).hex()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("result")
    parser.add_argument("--nvtx", required=True)
    parser.add_argument("--flood", type=float, default=0)
    arguments = parser.parse_args()
    library = ctypes.CDLL(arguments.nvtx)
    ways = [record_function, itt, nvtx(library)]
    model = torch.compile(lambda a: (a @ a).relu().sum(), backend="aot_eager")
    torch.set_num_threads(1)
    work()
    code = [instructions(library)]
    print("ready", flush=True)
    input()
    code.append(instructions(library))
    ranges = []
    with torch.profiler.record_function("compile the model"):
        model(torch.ones(32, 32))
    for step in range(RANGES):
        for way in ways:
            nested(ranges, step, way)
        for way in (pushed_with_attributes(library), started(library)):
            one = way(ranges, f"alone {step}")
            next(one)
            work()
            next(one, None)
        crossed(ranges, nvtx(library), nvtx_domain(library, 1), nvtx_domain(library, 2))
    with torch.profiler.record_function("name with \x1b[31m \"quotes\"\n and " + "x" * 500):
        work()
    unknown = overlapping(library)
    flooded = flood(library, arguments.flood) if arguments.flood else None
    code.append(instructions(library))
    with open(arguments.result, "w", encoding="utf-8") as file:
        json.dump({"ranges": ranges, "overlapping": unknown, "flood": flooded, "code": code}, file)
    print("done", flush=True)
    input()


if __name__ == "__main__":
    main()
