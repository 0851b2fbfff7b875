"""Compiles that stand still at known places, one after the other: prints `at NAME {…}` with what is
true there, and goes on with the next when it gets a line.

    stuck_compile.py NAME...
"""
import json
import sys
import threading
import time

import torch
from torch._dynamo import utils
from torch._dynamo.backends.common import aot_autograd
from torch._guards import _TLS, CompileContext

holding = None  # the name of the place to stand at
calls = 0


def phases():
    return list(utils.get_chromium_event_logger().get_stack())


def stack(frame):
    found = []
    while frame is not None:
        code = frame.f_code
        found.append([getattr(code, "co_qualname", code.co_name), code.co_filename, frame.f_lineno])
        frame = frame.f_back
    return found


def hold(name, **more):
    global holding
    if name != holding:
        return
    holding = None
    context = getattr(_TLS, "compile_context", None)
    truth = {
        "tid": threading.get_native_id(),
        "id": str(CompileContext.current_compile_id()),
        "attempt": context.attempt if context else None,
        "phases": phases(),
        "start_ns": utils.get_metrics_context()._start_time_ns,
        "level": utils.get_metrics_context()._level,
        "stack": stack(sys._getframe()),
        **more,
    }
    text = f"at {name} " + json.dumps(truth) + "\n"
    _ = (sys.stdout.write(text), sys.stdout.flush(), sys.stdin.readline())


@torch._dynamo.assume_constant_result
def traced_constant():
    """Dynamo runs this while it traces its caller: once in each attempt."""
    global calls
    calls += 1
    if calls == 2:
        hold("tracing")
    return 2


class Block(torch.nn.Module):
    def forward(self, x):
        y = x + 1
        y = (
            y
            * traced_constant()
        )
        return y


def breaks(block, x):
    y = block(
        x,
    )
    torch._dynamo.graph_break()
    return y + 1


def tracing():
    torch.compile(breaks, backend="eager")(Block(), torch.ones(3))


def slow_backend(graph, inputs):
    hold("backend")
    return graph.forward


def helper(x):
    return x.sin()


def plain(x):
    x = helper(x)
    return x * 2


def backend():
    torch.compile(plain, backend=slow_backend)(torch.ones(3))


def slow_backward(graph, inputs):
    hold("backward")
    return graph.forward


def train(x):
    return (x * x).sum()


def backward():
    compiler = aot_autograd(fw_compiler=lambda graph, inputs: graph.forward, bw_compiler=slow_backward)
    torch.compile(train, backend=compiler)(torch.ones(3, requires_grad=True)).backward()


@torch.library.custom_op("stuck::slow", mutates_args=())
def slow_op(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@slow_op.register_fake
def _(x):
    # Dynamo asks for the shape, then AOTAutograd.
    if "create_aot_dispatcher_function" in phases():
        hold("retracing")
    return torch.empty_like(x)


def with_op(x):
    x = x + 1
    return slow_op(x)


def retracing():
    torch.compile(with_op, backend="aot_eager")(torch.ones(3))


def lowering():
    """Inductor is at a node of its graph whose number is known."""
    from torch._inductor.lowering import clone, register_lowering
    from torch._inductor.virtualized import V

    @register_lowering(torch.ops.stuck.slow.default, type_promotion_kind=None)
    def lower(x):
        node = V.graph.current_node
        nodes = list(node.graph.nodes)
        hold("lowering", node=nodes.index(node) + 1, nodes=len(nodes))
        return clone(x)

    torch.compile(with_op)(torch.ones(3))


def inner(x):
    return x + 3


def nesting_backend(graph, inputs):
    time.sleep(0.3)
    torch.compile(inner, backend=inner_backend)(torch.ones(2))
    return graph.forward


def inner_backend(graph, inputs):
    hold("nested")
    return graph.forward


def outer(x):
    return x + 4


def nested():
    torch.compile(outer, backend=nesting_backend)(torch.ones(3))


def other(x):
    return x - 1


def waiting():
    """Holds the lock in its compile while another thread wants it."""

    def second():
        torch.compile(other, backend="eager")(torch.ones(3))

    def lock_backend(graph, inputs):
        thread.start()
        time.sleep(0.3)
        hold("waiting")
        return graph.forward

    thread = threading.Thread(target=second, name="second", daemon=True)
    torch.compile(plain, backend=lock_backend)(torch.ones(3))
    thread.join()


def running():
    """Compiles without a pause until it is asked to stop."""
    stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), stop.set()), daemon=True).start()
    print("at running {}", flush=True)
    while not stop.is_set():
        torch._dynamo.reset()
        torch.compile(breaks, backend="eager")(Block(), torch.ones(3))


def idle():
    hold("idle")


def main():
    global calls, holding
    for name in sys.argv[1:]:
        torch._dynamo.reset()
        calls, holding = 0, name
        globals()[name]()
    print("done", flush=True)


main()
