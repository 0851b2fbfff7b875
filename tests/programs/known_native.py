"""A target whose merged stacks are known: Python and native code in turns, through ctypes.

    known_native.py LIBRARY LATER OUT.json [--seconds S]

LIBRARY is programs/native/deep_calls.cpp, LATER a copy of it that is loaded only half way. Prints
`ready <pid>`, waits for a line on stdin, then runs its phases. In each one leaf() of the library keeps its
frame for a while. OUT.json is a list of

    {"phase", "tid", "begin", "end", "cpu_ns",
     "native": [[object, offset in the file], ...] of leaf()'s callers, innermost first,
     "in_eval_loop": [bool, ...] for each of them,
     "merged": names of the library's functions and of this file's, innermost first, from leaf() on}
"""

import argparse
import ctypes
import json
import os
import sys
import threading
from bisect import bisect_right

FILE = os.path.abspath(__file__)


class Record(ctypes.Structure):
    _fields_ = [
        ("begin", ctypes.c_uint64),
        ("end", ctypes.c_uint64),
        ("cpu_ns", ctypes.c_uint64),
        ("tid", ctypes.c_uint32),
        ("count", ctypes.c_uint32),
        ("ips", ctypes.c_uint64 * 1024),
    ]


class SymbolInfo(ctypes.Structure):
    _fields_ = [
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    ]


CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)
ENTRIES = []
LOCK = threading.Lock()
DLADDR = ctypes.CDLL(None).dladdr
DLADDR.argtypes = [ctypes.c_void_p, ctypes.POINTER(SymbolInfo)]
FIND_FUNCTION = ctypes.CDLL("libgcc_s.so.1")._Unwind_FindEnclosingFunction
FIND_FUNCTION.restype, FIND_FUNCTION.argtypes = ctypes.c_void_p, [ctypes.c_void_p]


def load(path):
    library = ctypes.CDLL(path)
    library.own_record.restype = ctypes.POINTER(Record)
    library.own_record.argtypes = [ctypes.c_uint64]
    library.bounce.argtypes = [CALLBACK, ctypes.c_int]
    return library


def executable_mappings():
    rows = []
    with open("/proc/self/maps", encoding="utf-8") as file:
        for line in file:
            fields = line.split(maxsplit=5)
            if "x" not in fields[1]:
                continue
            start, end = (int(text, 16) for text in fields[0].split("-"))
            path = fields[5].strip() if len(fields) > 5 else ""
            rows.append((start, end, int(fields[2], 16), path))
    return rows


def symbol_of(address):
    info = SymbolInfo()
    found = DLADDR(address, ctypes.byref(info))
    return (info.name or b"").decode() if found else ""


# Distributions strip the symbols of the parts that the compiler split off the interpreter's loop.
_loop_parts = set()


def function_around(address):
    """Where the function begins, or the split-off part of one, by its unwind information."""
    return FIND_FUNCTION(address)


def learn_eval_loop(ips):
    """What PyEval_EvalCode calls and no symbol names is the loop."""
    for inner, outer in zip(ips, ips[1:]):
        if symbol_of(outer - 1) == "PyEval_EvalCode" and not symbol_of(inner - 1):
            _loop_parts.add(function_around(inner - 1))


def is_eval_loop(address):
    return symbol_of(address) == "_PyEval_EvalFrameDefault" or function_around(address) in _loop_parts


def own_frames():
    """Functions of this file on the stack, innermost first, but for this one and note()."""
    frame, names = sys._getframe(2), []
    while frame is not None:
        if os.path.abspath(frame.f_code.co_filename) == FILE:
            names.append(frame.f_code.co_name)
        frame = frame.f_back
    return names


def note(phase, library, call, merged):
    """Runs `call`, which ends in leaf(); `merged` is given the Python frames and says the whole."""
    record = library.own_record(int(SECONDS * 1e9)).contents
    frames = own_frames()
    call()
    mappings = executable_mappings()
    starts = [row[0] for row in mappings]
    native, loops = [], []
    learn_eval_loop(record.ips[: record.count])
    # leaf() itself comes first: the sampled one is elsewhere in it.
    for ip in record.ips[1 : record.count]:
        start, _, offset, path = mappings[bisect_right(starts, ip - 1) - 1]
        native.append([path, ip - 1 - start + offset])
        loops.append(is_eval_loop(ip - 1))
    entry = {
        "phase": phase,
        "tid": record.tid,
        "begin": record.begin,
        "end": record.end,
        "cpu_ns": record.cpu_ns,
        "native": native,
        "in_eval_loop": loops,
        "merged": ["leaf"] + merged(["note"] + frames),
    }
    # A signal frame says exactly where it interrupted.
    entry["exact_above"] = phase.startswith("signal")
    with LOCK:
        ENTRIES.append(entry)


def simple(library, phase, functions, name, *arguments):
    call = getattr(library, name)
    note(phase, library, lambda: call(*arguments), lambda frames: functions + ["<lambda>"] + frames)


class Nest:
    """Python -> C -> Python -> C ..., `depth` times, and leaf() at the bottom."""

    def __init__(self, library, phase, depth):
        self.library = library
        self.phase = phase
        self.depth = depth
        self.callback = CALLBACK(self.called)
        self.below = None

    def called(self, level):
        return self.further(level)

    def further(self, level):
        if level:
            return self.library.bounce(self.callback, level - 1)
        note(self.phase, self.library, self.library.leaf, self.whole)
        return 0

    def whole(self, frames):
        # frames: note, further, called, further, called, ..., run, ...
        merged, rest = frames[:3], frames[3:]
        for _ in range(self.depth):  # the first level was called by run(), through no C
            merged += ["bounce"] + rest[:2]
            rest = rest[2:]
        return merged + rest

    def run(self):
        return self.called(self.depth)


def nested(library, phase, depth):
    Nest(library, phase, depth).run()


def run_all(library, suffix=""):
    simple(library, "recursion" + suffix, ["recurse"] * 101, "recurse", 100)
    simple(library, "alloca" + suffix, ["with_alloca"] * 8, "with_alloca", 10000)
    simple(library, "realigned" + suffix, ["realigned"], "realigned", 100)
    simple(library, "signal" + suffix, ["on_signal", "in_signal"], "in_signal", 0)
    simple(library, "signal_altstack" + suffix, ["on_signal", "in_signal"], "in_signal", 1)
    simple(library, "qsort" + suffix, ["compare", "through_qsort"], "through_qsort", 0)
    simple(library, "tail_call" + suffix, ["tail_target"], "tail_caller", 1)
    simple(library, "catch" + suffix, ["exceptions"], "exceptions", 0)
    simple(library, "cleanup" + suffix, ["~Cleans", "throws", "exceptions"], "exceptions", 1)
    nested(library, "nest_1" + suffix, 1)
    nested(library, "nest_20" + suffix, 20)


def main():
    global SECONDS
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("later")
    parser.add_argument("out")
    parser.add_argument("--seconds", type=float, default=0.2)
    options = parser.parse_args()
    SECONDS = options.seconds
    library = load(options.library)
    print("ready", os.getpid(), flush=True)
    sys.stdin.readline()
    run_all(library)
    threads = [
        threading.Thread(target=nested, args=(library, "threads", depth)) for depth in (3, 5, 8, 20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    later = load(options.later)
    # The first samples in new code are how it is found.
    later.own_record(int(0.3e9))
    later.leaf()
    run_all(later, "_later")
    with open(options.out + ".part", "w", encoding="utf-8") as file:
        json.dump(ENTRIES, file)
    os.replace(options.out + ".part", options.out)
    print("done", flush=True)


if __name__ == "__main__":
    main()
