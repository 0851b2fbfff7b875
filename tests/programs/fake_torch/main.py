"""Stands still in a chosen compile: main.py SCENARIO. Prints "ready" when it stands."""
import sys
import time

import torch


def hold():
    print("ready", flush=True)
    while True:
        time.sleep(1)


def user_function(x):
    return x + 1


def make_id(frame, compile_, autograd=None):
    from torch._guards import CompileId

    if torch.LAYOUT == "2.6":
        return CompileId(frame, compile_)
    return CompileId(frame_id=frame, frame_compile_id=compile_, compiled_autograd_id=autograd)


def forward(autograd=None):
    from torch._dynamo.convert_frame import _compile

    code = user_function.__code__
    make_id(0, 0)
    _compile(code, {}, {}, hold, compile_id=make_id(3, 7, autograd), attempts=3)


def backward(look_at_dict=False, id_=True):
    from torch._functorch._aot_autograd.runtime_wrappers import run_backward
    from torch._guards import CompileContext

    CompileContext(make_id(0, 0))
    context = CompileContext(make_id(12, 1)) if id_ else None
    if id_:
        context.attempt = 5
    if look_at_dict:
        vars(context)
    run_backward(context, hold)


def early():
    """torch is imported, but nothing was compiled: no instance of anything yet."""
    import torch._dynamo.convert_frame
    import torch._guards  # noqa: F401

    hold()


SCENARIOS = {
    "forward": forward,
    "forward_autograd": lambda: forward(autograd=2),
    "backward": backward,
    "backward_dict": lambda: backward(look_at_dict=True),
    "backward_none": lambda: backward(id_=False),
    "early": early,
    "bare": hold,
}
SCENARIOS[sys.argv[1]]()
