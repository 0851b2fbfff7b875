"""Exceptions, of Python and of C++, through the functions that are probed."""

import threading
import time

import torch
from torch.monitor import _WaitCounter

from cases.common import case, compiled_step, paced, warm_up


class Refused(Exception):
    pass


class RaisesInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        raise Refused


class RunsAnotherBackward(torch.autograd.Function):
    """A backward inside a backward, and an exception through both."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        with torch.enable_grad():
            inner = torch.ones(3, requires_grad=True)
            RaisesInBackward.apply(inner).sum().backward()
        return grad


def refuse(grad):
    raise Refused


def changed_in_place(x):
    a = x.exp()
    b = a * a
    a.add_(1)
    return b.sum()


def raise_in_backward(step, x, number):
    """One of the ways in which a backward ends by an exception; 1 if it was caught."""
    way = number % 5
    try:
        if way == 0:
            step(RaisesInBackward.apply(x)).backward()  # after the compiled backward
        elif way == 1:
            RaisesInBackward.apply(step(x)).backward()  # before it
        elif way == 2:
            step(RunsAnotherBackward.apply(x)).backward()
        elif way == 3:
            y = x * 1
            y.register_hook(refuse)
            step(y).backward()
        else:
            (changed_in_place(x) + step(x)).backward()
    except (Refused, RuntimeError):
        return 1
    return 0


@case
def backward_raises(rounds):
    step, x = warm_up()
    caught = sum(raise_in_backward(step, x, number) for number in paced(rounds))
    x.grad = None
    step(x).backward()
    return f"{caught} exceptions, gradient {x.grad.sum().item():.4f}"


@case
def backward_raises_on_threads(rounds):
    step, _ = warm_up()
    caught = []

    def run():
        x = torch.ones(8, requires_grad=True)
        own = sum(raise_in_backward(step, x, number) for number in paced(rounds // 4, 20))
        caught.append(own)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return f"{sum(caught)} exceptions on {len(caught)} threads"


@torch._dynamo.disable
def refuse_some(x, number):
    if number % 2:
        raise Refused


@case
def compiled_region_raises(rounds):
    """The compiled code raises: in an operation of its graph, and in a call between two graphs."""

    @torch.compile(backend="aot_eager", dynamic=False)
    def pick(x, index):
        return x.sin()[index]

    @torch.compile(backend="aot_eager", dynamic=False)
    def broken(x, number):
        x = x.sin()
        refuse_some(x, number)
        return x.cos()

    x, good, bad = torch.ones(4), torch.tensor([1]), torch.tensor([9])
    caught, total = 0, 0.0
    for number in paced(rounds):
        try:
            total += pick(x, bad if number % 2 else good).item()
        except IndexError:
            caught += 1
        try:
            total += broken(x, torch.tensor(number)).sum().item()
        except Refused:
            caught += 1
    return f"{caught} exceptions, {total:.3f}"


@case
def compile_raises(rounds):
    """Compiles that fail, and exceptions through torch's wait counters."""

    def backend(graph, inputs):
        raise Refused

    def failing(x):
        return x.sin() + 1

    x, caught = torch.ones(4), 0
    for _ in range(max(4, rounds // 20)):
        torch._dynamo.reset()
        try:
            torch.compile(failing, backend=backend)(x)
        except (Refused, torch._dynamo.exc.TorchDynamoException):
            caught += 1
        for _ in range(10):
            try:
                with _WaitCounter("pytorch.wait_counter.dynamo_compile").guard():
                    with _WaitCounter("pytorch.wait_counter.faults").guard():
                        raise Refused
            except Refused:
                caught += 1
    return f"{caught} exceptions"


@case
def clock_calls(rounds):
    """time.time_ns() far more often than anything may look at, also with arguments that it refuses."""
    caught = 0
    before = time.time_ns()
    for number in range(rounds * 200):
        time.time_ns()
        if number % 100 == 0:
            try:
                time.time_ns(number)
            except TypeError:
                caught += 1
        if number % (rounds * 50) == 0:
            compiled_step()(torch.ones(3, requires_grad=True)).backward()
    return f"{caught} exceptions, {'forward' if time.time_ns() > before else 'backward'}"
