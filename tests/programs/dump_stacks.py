"""Threads in known places, said as JSON before they stand there: {tid: {name, stack, leaf}}.

Frames are [function, file, line], leaf first. `leaf` are the lines a thread that runs may be at in its
first frame; of one that calls all the time, `stacks` are the function names there can be.
"""
import asyncio
import collections
import json
import os
import sys
import threading
import time
import types

known = {}  # what is said
arrived = threading.Semaphore(0)


def name_of(code):
    return getattr(code, "co_qualname", code.co_name)


def here(frame):
    found = []
    while frame is not None:
        found.append([name_of(frame.f_code), frame.f_code.co_filename, frame.f_lineno])
        frame = frame.f_back
    return found


def say(**more):
    known[threading.get_native_id()] = {
        "name": threading.current_thread().name,
        "stack": here(sys._getframe(1)),
        **more,
    }
    arrived.release()


def stand():
    # One line, so that it is true until the end.
    return (say(), time.sleep(3600))


def recurse(depth):
    if depth:
        return recurse(depth - 1)
    return (
        1,
        stand(),
    )


class Worker:
    @property
    def item(self):
        try:
            return sorted([1], key=lambda _: stand())
        finally:
            len("")

    def run(self):
        return self.item


def generate(depth):
    if depth:
        yield from generate(depth - 1)
    yield stand()


async def wait(depth):
    if depth:
        return await wait(depth - 1)
    await asyncio.sleep(0)
    return stand()


def spin():
    first = sys._getframe().f_lineno
    say(leaf=[first, first + 4])
    while True:
        len("")


def below():
    return 1


def middle():
    return below() + below()


def produce():
    for _ in range(5):
        yield below()


def hurry():
    """Generators too: one that yields loses its caller."""
    own = [name for name, _, _ in here(sys._getframe())]
    calls = ([], ["middle"], ["below", "middle"], ["produce"], ["below", "produce"])
    say(stacks=[names + own for names in calls])
    while True:
        middle()
        for _ in produce():
            middle()


# ---- what looks like torch -----------------------------------------------------------------------


def own(lock):
    with lock, lock:
        stand()


def want(lock):
    say()
    with lock:
        pass


def locks():
    module = types.ModuleType("torch._dynamo.convert_frame")
    module.compile_lock = threading.RLock()
    sys.modules[module.__name__] = module
    another = threading.RLock()
    start(own, another, name="owner of another")
    start(want, another, name="wants another")
    start(own, module.compile_lock, name="owner")
    start(want, module.compile_lock, name="wants")
    start(want, module.compile_lock, name="wants too")
    time.sleep(0.3)


SYMBOLIC_CONVERT = """
class Instruction:
    __slots__ = ("arg", "positions", "starts_line")
    def __init__(self, line):
        self.positions = POSITIONS(line, line, 0, 1) if POSITIONS else None
        self.starts_line = line

class InstructionTranslatorBase:
    def __init__(self, code, line, stale, inner=None):
        for i in range(50):
            setattr(self, f"field_{i}", i)
        self.f_code, self.line, self.lineno, self.inner = code, line, stale, inner
    def step(self):
        inst = Instruction(self.line)
        return self.inner.run() if self.inner else STAND()
    def run(self):
        while self.step():
            pass

class InliningInstructionTranslator(InstructionTranslatorBase):
    pass
"""


def traced_method(self):
    return 1


def tracing():
    """Three calls being traced; the line of the innermost is known by its translator alone."""
    newer = sys.version_info >= (3, 11)
    space = {
        "STAND": stand,
        "POSITIONS": collections.namedtuple("Positions", "lineno end_lineno col end_col")
        if newer
        else None,
    }
    exec(compile(SYMBOLIC_CONVERT, "/x/torch/_dynamo/symbolic_convert.py", "exec"), space)
    base, inlining = space["InstructionTranslatorBase"], space["InliningInstructionTranslator"]
    code = [f.__code__ for f in (tracing, Worker.run, traced_method)]
    leaf = inlining(code[2], None, code[2].co_firstlineno + 1)
    middle = inlining(code[1], code[1].co_firstlineno + 1, 1, leaf)
    root = base(code[0], code[0].co_firstlineno + 2, 1, middle)
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "fake_torch"))
    from torch._dynamo.convert_frame import _compile
    from torch._guards import CompileId

    def compile_it():
        CompileId(frame_id=0, frame_compile_id=0)
        _compile(
            code[0],
            {},
            {},
            root.run,
            compile_id=CompileId(frame_id=3, frame_compile_id=7),
            attempts=3,
        )

    start(compile_it, name="tracer")
    user_code = [
        [name_of(c), c.co_filename, c.co_firstlineno + n] for c, n in zip(code, (2, 1, 1))
    ]
    known["user_code"] = user_code


def start(target, *arguments, name=None):
    threading.Thread(target=target, args=arguments, name=name, daemon=True).start()
    arrived.acquire()


PLANS = {
    "still": lambda: (
        start(recurse, 40, name="deep"),
        start(Worker().run, name="two\nlines\x1b[31m \u202e"),
        start(lambda: list(generate(5)), name="generator"),
        start(lambda: asyncio.run(wait(3)), name="coroutine"),
    ),
    "busy": lambda: (start(spin, name="spin"), start(stand)),
    "hurry": lambda: start(hurry, name="hurry"),
    "deepest": lambda: (
        sys.setrecursionlimit(4000),
        threading.stack_size(256 << 20),
        start(recurse, 1500, name="deepest"),
    ),
    "locks": locks,
    "tracing": tracing,
    "many": lambda: [start(stand) for _ in range(310)],
}
PLANS[sys.argv[1]]()
print("ready " + json.dumps(known), flush=True)
time.sleep(3600)
