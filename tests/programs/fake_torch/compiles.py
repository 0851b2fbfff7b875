"""Compiles that never were, by the clock: compiles.py SCENARIO. Everything torch would say of them lies where
torch keeps it: locals of frames, thread-locals, the list of open phases.

  kinds     a forward with three attempts, its lazy backward, an export (on a second thread), and, where
            CompileId knows it, a capture of compiled autograd with a forward inside
  inlines   a forward in which Dynamo traces user functions: INLINED of them, two at a time
  no_frames, no_context, no_phases, nothing
            the same, but `_compile` is called otherwise; _guards has no _TLS; utils no event log; all three
  forged    the same places hold what must not be believed
  hostile   the function that is compiled has a name to fear

Prints `ready`, waits for a line, compiles, and prints `done` with a JSON list of
{"id", "kind", "attempt", "tid", "begin_ns", "end_ns", "phases": [outermost first]}: what was open when, for each
attempt, by CLOCK_MONOTONIC. Waits for another line and exits at once.
"""
import contextlib
import ctypes
import gc
import json
import os
import sys
import threading
import time
import types

import torch
from torch import _guards
from torch._dynamo import compiled_autograd, convert_frame, utils
from torch._functorch._aot_autograd import runtime_wrappers
from torch._guards import CompileContext, compile_context

SCENARIO = sys.argv[1]
CPU_SECONDS = float(os.environ.get("FAKE_TORCH_SECONDS", "0.12"))  # of each phase
INLINED = 20
HOSTILE = "../../../../tmp/dynprof-escaped\x1b[2J\x1b]0;owned\x07\n99.99% fake row\u202e\udcff" + "L" * 5000
TRUTH = []
OLD = torch.LAYOUT == "2.6"


def user_function(x):
    return x + 1


def make_id(frame, compile_, autograd=None):
    if OLD:
        return _guards.CompileId(frame, compile_)
    return _guards.CompileId(
        frame_id=frame, frame_compile_id=compile_, compiled_autograd_id=autograd
    )


def text_of(frame, compile_, autograd=None):
    parts = [f"!{autograd}"] if autograd is not None else []
    parts += [str(part) for part in (frame, compile_) if part is not None]
    return "/".join(parts)


def burn(seconds=CPU_SECONDS):
    """Where the thread's clock goes on while its CPU stands still, that counts as 2 ms at most."""
    last, left = time.thread_time(), seconds
    while left > 0:
        sum(range(200))
        now = time.thread_time()
        left -= min(now - last, 0.002)
        last = now


@contextlib.contextmanager
def noted(id_, kind, attempt, phases):
    row = {"id": id_, "kind": kind, "attempt": attempt, "tid": threading.get_native_id()}
    row |= {"phases": phases, "begin_ns": time.monotonic_ns()}
    TRUTH.append(row)
    try:
        yield
    finally:
        row["end_ns"] = time.monotonic_ns()


class Forward:
    """What a forward does in its frames: torch's phases, of which 2.6 has none per attempt."""

    def __init__(self, id_, context, attempts, trace=burn):
        self.id, self.context, self.attempts, self.trace = id_, context, attempts, trace
        self.open = contextlib.ExitStack()
        self.rows = []
        self.begin_ns = time.monotonic_ns()

    def attempt(self, number):
        if not self.rows:
            self.open.enter_context(compile_context(self.context))
            for phase in ("dynamo", "entire_frame_compile"):
                self.open.enter_context(utils.dynamo_timed(phase))
        self.context.attempt = number
        name = [] if OLD else [f"compile_attempt_{number}"]
        with contextlib.ExitStack() as stack:
            phases = ["dynamo", "entire_frame_compile", *name]
            stack.enter_context(noted(self.id, "forward", number, phases))
            self.rows.append(TRUTH[-1])
            for phase in name:
                stack.enter_context(utils.dynamo_timed(phase))
            with utils.dynamo_timed("bytecode_tracing"):
                self.trace()

    given_up = attempt

    def __call__(self):
        self.attempt(self.attempts - 1)
        self.open.close()
        self.rows[0]["begin_ns"] = self.begin_ns
        self.rows[-1]["end_ns"] = time.monotonic_ns()


def forward(frame, compile_, autograd=None, attempts=3, code=user_function.__code__, trace=burn):
    id_ = make_id(frame, compile_, autograd)
    run = Forward(text_of(frame, compile_, autograd), CompileContext(id_), attempts, trace)
    convert_frame._compile(code, {}, {}, run, compile_id=id_, attempts=attempts)


def backward(frame, compile_, attempt):
    context = CompileContext(make_id(frame, compile_))
    context.attempt = attempt

    def compile_it():
        with compile_context(context), utils.dynamo_timed("entire_backward_compile"):
            text = text_of(frame, compile_)
            with noted(text, "backward", attempt, ["entire_backward_compile"]):
                burn()

    runtime_wrappers.run_backward(context, compile_it)


def export(frame, compile_):
    with compile_context(CompileContext(make_id(frame, compile_))):
        with utils.dynamo_timed("fullgraph_capture"):
            with noted(text_of(frame, compile_), "export", 0, ["fullgraph_capture"]):
                burn()


def capture(number):
    def from_deeper(function):
        function()  # its frame lies where no frame of the other one did

    compiler = compiled_autograd.AutogradCompilerInstance()
    with compile_context(CompileContext(make_id(None, None, number))):
        compiler.begin_capture()
        with noted(f"!{number}", "compiled_autograd", 0, ["compiled_autograd"]):
            burn()
            forward(5, 0, number, attempts=1)
        from_deeper(compiler.end_capture)


def kinds():
    forward(0, 0, attempts=1)  # until a thread's first compile is noticed it is not watched
    forward(3, 7)
    backward(3, 7, 2)
    thread = threading.Thread(target=lambda: (export(4, 0), export(4, 1)))
    thread.start()
    thread.join()
    if not OLD:
        capture(2)


def inlines():
    from torch._dynamo.symbolic_convert import profile_inline_call

    def trace():
        burn(0.02)  # as torch builds its tracer: the watchpoints are armed meanwhile
        for _ in range(INLINED // 2):
            with profile_inline_call(None, user_function.__code__, None):
                with profile_inline_call(None, burn.__code__, None):
                    burn(0.02)

    forward(0, 0, attempts=1)  # its thread is not watched from the start
    forward(1, 0, attempts=1, trace=trace)


def hide_frames():
    real = convert_frame._compile
    changes = {"co_name": "_compiles"}
    if hasattr(real.__code__, "co_qualname"):
        changes["co_qualname"] = "_compiles"
    renamed = types.FunctionType(real.__code__.replace(**changes), real.__globals__)
    renamed.__kwdefaults__ = real.__kwdefaults__
    convert_frame._compile = renamed


def no_frames():
    hide_frames()
    kinds()


def no_context():
    global compile_context
    elsewhere = dict(vars(_guards), _TLS=types.SimpleNamespace())
    code = compile_context.__wrapped__.__code__
    compile_context = contextlib.contextmanager(types.FunctionType(code, elsewhere))
    del _guards._TLS
    kinds()


def no_phases():
    logger = utils.ChromiumEventLogger()
    utils.get_chromium_event_logger = lambda: logger
    kinds()


def nothing():
    hide_frames()
    logger = utils.ChromiumEventLogger()
    utils.get_chromium_event_logger = lambda: logger
    no_context()


# ---- what must not be believed ------------------------------------------------------------------

KEPT = []


def huge_list():
    forged = ["dynamo"]
    ctypes.c_ssize_t.from_address(id(forged) + 16).value = 1 << 40  # ob_size
    KEPT.append(forged)
    return forged


def dangling_list():
    forged = ["dynamo"]
    ctypes.c_void_p.from_address(id(forged) + 24).value = 0x7EAD_BEEF_0000  # ob_item
    KEPT.append(forged)
    return forged


def cyclic():
    loop = {}
    loop["self"] = loop
    return loop


def forged_contexts():
    own = CompileContext(None)
    own.compile_id = own
    yield own
    ids = ("0/0", b"0/0", ("9", "9"), cyclic(), [9, 9], 9, 9.5, object(), CompileContext)
    for id_ in ids:
        yield CompileContext(id_)
    yield from ("9/9", cyclic(), 9, [CompileContext(None)], type)
    for numbers in ((1 << 70, 0), (-9, -9), ("9", "9"), (9.5, 9), (None, 9), (cyclic(), 9)):
        context = CompileContext(make_id(*numbers))
        context.attempt = numbers[0]
        yield context


def forged_stacks():
    inside = []
    inside.append(inside)
    yield from ("dynamo", ("dynamo",), {"dynamo": 1}, 7, None, inside, [b"dynamo", 9, None])
    yield ["dynamo"] * 100_000
    yield ["x" * 1_000_000, "\udcff\x1b[2J", "dynamo\n9/9"]
    yield huge_list()
    yield dangling_list()


def forged():
    gc.disable()
    forward(0, 0, attempts=1)
    log = utils.get_chromium_event_logger()
    for number, context in enumerate(forged_contexts()):
        _guards._TLS.compile_context = context
        log.tls.stack = []
        burn(0.03)
        code = user_function.__code__ if number % 2 else context
        convert_frame._compile(code, {}, {}, lambda: burn(0.03), compile_id=context)
    _guards._TLS.compile_context = None
    for stack in forged_stacks():
        log.tls.stack = stack
        burn(0.05)
        _guards._TLS.compile_context = CompileContext(make_id(1, 1))
        burn(0.05)
        _guards._TLS.compile_context = None
    freed(log)
    log.tls = cyclic()
    utils.CHROMIUM_EVENT_LOG = cyclic()
    burn(0.1)
    utils.CHROMIUM_EVENT_LOG = log
    log.tls = threading.local()
    forward(2, 0, attempts=1)


def freed(log):
    """Every object on the way is another one each time, and the one before is gone."""
    end = time.thread_time() + 0.5
    while time.thread_time() < end:
        _guards._TLS.compile_context = CompileContext(make_id(1, 1))
        log.tls.stack = ["dynamo"]
        for _ in range(20):
            log.tls.stack.append("entire_frame_compile")
            log.tls.stack.pop()
        _guards._TLS.__dict__.clear()
        log.tls.__dict__.clear()
    _guards._TLS.compile_context = None


def hostile():
    changes = {"co_name": HOSTILE, "co_filename": "/etc/" + HOSTILE}
    if hasattr(user_function.__code__, "co_qualname"):
        changes["co_qualname"] = "Class." + HOSTILE
    forward(0, 0, attempts=2, code=user_function.__code__.replace(**changes))


if SCENARIO == "inlines":
    import torch._dynamo.symbolic_convert
print("ready", os.getpid(), flush=True)
sys.stdin.readline()
globals()[SCENARIO]()
print("done", json.dumps(TRUTH), flush=True)
sys.stdin.readline()
os._exit(0)
