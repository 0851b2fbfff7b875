"""Stands still in known stacks, and says as JSON what a reader from outside has to find.

target_stacks.py PLAN, one of
  threads       the main thread and two more, each deep in functions of its own
  names         functions with names and tables that are hard to keep whole
  subinterp     a thread that runs in a sub-interpreter, besides the main one
"""
import json
import sys
import threading
import time

hold = threading.Event()
stacks = {}


def stack_of(frame):
    found = []
    while frame is not None:
        code = frame.f_code
        table = code.co_linetable
        found.append(
            {
                "file": code.co_filename,
                "line": code.co_firstlineno,
                "name": code.co_name,
                "qualname": getattr(code, "co_qualname", code.co_name),
                "table": len(table),
                "slots": slots_of(code),
            }
        )
        frame = frame.f_back
    return found


def slots_of(code):
    """The names a frame can hold, wherever it holds them."""
    return sorted(set(code.co_varnames) | set(code.co_cellvars) | set(code.co_freevars))


def stand(arrived):
    stacks[str(threading.get_native_id())] = stack_of(sys._getframe(1))
    arrived.set()
    time.sleep(3600)


def recurse(n, arrived):
    if n:
        return recurse(n - 1, arrived)
    return stand(arrived)


class Worker:
    def generate(self, arrived):
        captured = arrived

        def inner():
            return stand(captured)

        yield (lambda: inner())()

    def run(self, arrived):
        for _ in self.generate(arrived):
            pass


def make(name, body="stand(arrived)", filename="made.py", lines=1):
    """A function of any name: exec cannot spell these."""
    space = {"stand": stand}
    text = "def f(arrived):\n" + "\n".join(["    x = 1"] * lines) + "\n    " + body
    exec(compile(text, filename, "exec"), space)
    function = space["f"]
    changes = {"co_name": name}
    if sys.version_info >= (3, 11):
        changes["co_qualname"] = name
    function.__code__ = function.__code__.replace(**changes)
    return function


def start(function, *arguments):
    arrived = threading.Event()
    threading.Thread(target=function, args=(*arguments, arrived), daemon=True).start()
    arrived.wait()


def say_and_stay():
    """The main thread stands here: its own stack is the last one noted."""
    stacks[str(threading.get_native_id())] = stack_of(sys._getframe())
    print("ready " + json.dumps(stacks), flush=True)
    time.sleep(3600)


def threads():
    start(lambda arrived: recurse(40, arrived))
    start(Worker().run)
    start(lambda arrived: sorted([1], key=lambda _: stand(arrived)))
    say_and_stay()


def names():
    for name in (
        "plain",
        "two\nlines\x1b[31m",
        "../../etc/passwd|\\",
        "n" * 10_000,
        "\u20ac\U0001f600",
        "broken\udcff",
        "caf\u00e9",
        "",
        "x" * 65_536,
        "y" * 65_537,
    ):
        start(make(name))
    start(make("table", lines=30_000))
    start(make("named_file", filename="dir\nwith|newline/\udcfe.py"))
    say_and_stay()


def subinterp():
    text = "import time\ndef inside():\n    time.sleep(3600)\ninside()\n"
    try:
        import _interpreters as interpreters  # 3.13

        run = lambda: interpreters.exec(interpreters.create(), text)  # noqa: E731
    except ImportError:
        import _xxsubinterpreters as interpreters

        run = lambda: interpreters.run_string(interpreters.create(), text)  # noqa: E731
    threading.Thread(target=run, daemon=True).start()
    time.sleep(1)
    say_and_stay()


{"threads": threads, "names": names, "subinterp": subinterp}[sys.argv[1]]()
