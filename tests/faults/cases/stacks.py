"""Calls that do not return in order: greenlets, contexts, longjmp, and threads that end inside."""

import ctypes
import signal

import torch

from cases.common import CALLBACK, case, native, paced, warm_up


@case
def greenlets_in_backward(rounds):
    """Four greenlets take turns, each inside a backward of its own, beside a compiled function."""
    import greenlet

    step, x = warm_up()
    switches = 0

    class Switches(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            nonlocal switches
            switches += 1
            main.switch()
            return grad * 2

    def body():
        while True:
            # A greenlet begins inside the backward of another one, where gradients are off.
            with torch.enable_grad():
                own = torch.ones(8, requires_grad=True)
                # Switches on the way out of the compiled backward, and on the way to it.
                Switches.apply(step(Switches.apply(own))).backward()
            results.append(own.grad.sum().item())

    results = []
    main = greenlet.getcurrent()
    others = [greenlet.greenlet(body) for _ in range(4)]
    for number in paced(rounds, 200):
        # Not in the order in which they came.
        others[(number * 7 + number // 5) % len(others)].switch()
    return f"{switches} switches, {len(results)} gradients of {sum(results):.3f}"


def backward_with(call, step):
    """A backward that calls `call` inside, once before and once after the compiled one."""

    class Calls(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            call()
            return grad

    with torch.enable_grad():  # also inside another backward
        x = torch.ones(8, requires_grad=True)
        Calls.apply(step(Calls.apply(x))).backward()
    return x.grad.sum().item()


@case
def contexts_in_backward(rounds):
    """Inside a backward, another stack (makecontext), on it more backwards, one of them in a third."""
    library = native()
    step, _ = warm_up()
    gradients = []

    def run(call):
        gradients.append(backward_with(call, step))

    inner = CALLBACK(lambda number: run(lambda: None))
    other = CALLBACK(
        lambda number: run(lambda: library.run_on_context(inner, 1) if number else None)
    )
    for _ in paced(max(2, rounds // 20), 8):
        run(lambda: library.run_on_context(other, 2))
    return f"{len(gradients)} gradients of {sum(gradients):.3f}"


@case
def longjmp_in_backward(rounds):
    """C code that jumps out of its own frames beneath a backward, and threads that jump out of one."""
    library = native()
    step, _ = warm_up()
    jumped, over = 0, 0

    def beneath():
        nonlocal jumped
        jumped += library.jump_beneath(20)

    def leave():
        # Its thread holds the GIL from here on; jump_over gives it back.
        ctypes.PyDLL(library._name).jump_out()

    def body(number):
        backward_with(leave, step)

    release = ctypes.CFUNCTYPE(None)(("PyEval_SaveThread", ctypes.pythonapi))
    for number in paced(rounds):
        backward_with(beneath, step)
        if number % 10 == 0:
            over += library.jump_over(CALLBACK(body), release)
    return f"{jumped} frames, {over} threads"


@case
def threads_end_by_force(rounds):
    """Threads that run a backward and then end by pthread_exit, or are cancelled."""
    library = native()
    step, _ = warm_up()
    ended, total = 0, 0.0

    def body(number):
        nonlocal total
        total += backward_with(lambda: None, step)

    function = CALLBACK(body)
    for number in paced(max(4, rounds // 4), 40):
        ended += library.run_and_end(function, number % 2)
    return f"{ended} threads"


class Interrupted(Exception):
    pass


@case
def signals_raise_in_backward(rounds):
    """A handler in Python that raises, at random times, inside a backward."""
    step, _ = warm_up()
    waiting = False

    def on_alarm(number, frame):
        nonlocal waiting
        if waiting:
            waiting = False
            raise Interrupted

    def wait_for_it():
        nonlocal waiting
        waiting = True
        while True:
            pass

    caught = 0
    signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, 0.0007, 0.0007)
    try:
        for _ in paced(rounds):
            try:
                backward_with(wait_for_it, step)
            except Interrupted:
                caught += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    return f"{caught} exceptions"


@case
def signals_on_another_stack(rounds):
    """2,000 signals a second of CPU time, handled in C on an alternate stack, while everything runs."""
    library = native()
    step, _ = warm_up()
    total = 0.0
    library.begin_signals(500)
    try:
        for _ in paced(rounds):
            total += backward_with(lambda: library.jump_beneath(3), step)
        torch._dynamo.reset()
        warm_up()
    finally:
        handled = library.end_signals()
    return f"{total:.3f}, handled {handled}"
