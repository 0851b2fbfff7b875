"""A CPython that turns against its readers, in the midst of a compile of a torch that never was:

    hostile_job.py SEED MILLISECONDS

Prints `ready`, waits for a line, changes its own memory for so long (native/scribble.c), prints `survived`, and ends.
Runs with every CPython: tests/programs/fake_torch must be on PYTHONPATH.
"""

import ctypes
import gc
import os
import random
import sys
import threading

import torch
from torch import _guards
from torch._dynamo import convert_frame, utils
from torch._functorch._aot_autograd import runtime_wrappers
from torch._guards import CompileContext, compile_context

NAMES = (
    "../../../../tmp/dynprof-escaped",
    "/etc/dynprof-escaped",
    "\x1b[2J\x1b]0;owned\x07red",
    "<script>alert(1)</script><img src=x onerror=alert(2)>",
    "line\nfeed\r99.99% fake row",
    "\u202emirror\x9b31m\u0085",
    "\udcff\ud800lone",
    "L" * 20_000,
    "%s%n{0}{}${HOME}`id`$(id)",
    "nu\0l",
)


class Span(ctypes.Structure):
    _fields_ = [("begin", ctypes.c_uint64), ("bytes", ctypes.c_uint64)]


def spans_of(objects):
    """The memory of objects, with what their garbage collector keeps in front."""
    for thing in objects:
        yield id(thing) - 16, max(64, min(sys.getsizeof(thing), 4096)) // 8 * 8


def pointed_to(address, words, bytes_):
    """What the first words of an object point to: frames, dicts, arrays of slots."""
    low, high = 0x10000, 1 << 47
    for offset in range(0, words * 8, 8):
        value = ctypes.c_uint64.from_address(address + offset).value
        if low <= value < high and value % 8 == 0:
            yield value, bytes_


def hot_spans():
    frames, frame = [], sys._getframe()
    while frame:
        frames.append(frame)
        frame = frame.f_back
    codes = [frame.f_code for frame in frames]
    objects = frames + codes
    for code in codes:
        objects += [code.co_filename, code.co_name, code.co_varnames, code.co_consts, code.co_code]
        objects += [getattr(code, "co_linetable", b""), getattr(code, "co_qualname", "")]
    objects += [
        type(objects),
        type(""),
        type({}),
        type(1),
        type(codes[0]),
        type(frames[0]),
        type(sys),
    ]
    objects += [
        sys.modules,
        vars(torch),
        vars(_guards),
        vars(utils),
        vars(convert_frame),
        _guards._TLS,
    ]
    objects += [utils.get_chromium_event_logger(), CompileContext, sys.modules["torch"]]
    objects += [
        thing
        for thing in gc.get_objects()
        if isinstance(thing, (CompileContext, _guards.CompileId))
    ]
    spans = list(spans_of(objects))
    api = ctypes.pythonapi
    for get in ("PyThreadState_Get", "PyInterpreterState_Get"):
        function = getattr(api, get)
        function.restype = ctypes.c_uint64
        spans.append((function(), 1024))
        spans += pointed_to(function(), 32, 256)
    spans.append((ctypes.addressof(ctypes.c_char.in_dll(api, "_PyRuntime")), 2048))
    for frame in frames:
        spans += pointed_to(id(frame), 8, 256)
    return spans


def scribble(seed, milliseconds):
    library = ctypes.PyDLL(os.environ["FAULTS_NATIVE"] + "/scribble.so")
    spans = hot_spans()
    array = (Span * len(spans))(*(Span(*span) for span in spans))
    print("ready", flush=True)
    sys.stdin.readline()
    library.scribble(array, len(spans), ctypes.c_uint64(seed), ctypes.c_uint64(milliseconds))


def named(function, name):
    changes = {"co_name": name, "co_filename": f"/nowhere/{name}.py"}
    if hasattr(function.__code__, "co_qualname"):
        changes["co_qualname"] = f"Class.{name}"
    return type(function)(function.__code__.replace(**changes), globals())


def call_next(functions, last):
    return functions[0](functions[1:], last) if functions else last()


def main():
    seed, milliseconds = int(sys.argv[1]), int(sys.argv[2])
    chance = random.Random(seed)
    gc.disable()
    for _ in range(3):  # threads that wait for ever
        threading.Thread(
            target=threading.Event().wait, daemon=True, name=chance.choice(NAMES)[:15]
        ).start()
    old = torch.LAYOUT == "2.6"
    id_ = _guards.CompileId(3, 7) if old else _guards.CompileId(frame_id=3, frame_compile_id=7)
    context = CompileContext(id_)
    names = chance.sample(NAMES, len(NAMES))
    functions = [named(call_next, name) for name in names]
    code = named(call_next, names[0]).__code__

    def inside():
        call_next(functions, lambda: scribble(seed, milliseconds))

    with compile_context(context), utils.dynamo_timed("dynamo"), utils.dynamo_timed(names[1]):
        if seed % 2:
            convert_frame._compile(code, {}, {}, inside, compile_id=id_, attempts=1)
        else:
            runtime_wrappers.run_backward(context, inside)


main()
