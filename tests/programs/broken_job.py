"""A job with graph breaks for the pages of generated code, and for what a decompiler makes of them.

usage: broken_job.py BACKEND

Prints "ready" and compiles after a line on stdin; then "done". Each further line is a path of decompiled
source: the function in it, with the compiled graphs and resume functions of the job as its globals, is
called in place of the compiled one, and "equal" or "differs" is printed.
"""

import sys

import torch
import torch._dynamo

SCALE = 2.0


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(8, 16)
        self.second = torch.nn.Linear(16, 4)

    def forward(self, x, gain=3.0):
        hidden = torch.relu(self.first(x)) * gain
        torch._dynamo.graph_break()
        out = self.second(hidden)
        if out.sum() > 0:  # a break on data
            out = out + SCALE
        else:
            out = out - SCALE
        return {"out": torch.softmax(out, dim=-1), "hidden": hidden}


def same(a, b):
    return a.keys() == b.keys() and all(torch.allclose(a[key], b[key], atol=1e-5) for key in a)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, x = Model(), torch.randn(4, 8)
    expected = model(x)
    print("ready", flush=True)
    sys.stdin.readline()
    compiled = torch.compile(model, backend=sys.argv[1])
    assert same(compiled(x), expected)
    print("done", flush=True)
    for line in sys.stdin:
        scope = dict(globals())
        with open(line.strip()) as file:
            exec(file.read(), scope)
        torch._dynamo.config.disable = True  # the resume functions run as they are
        function = scope["forward"]
        function.__defaults__ = Model.forward.__defaults__  # they are not part of the code
        print("equal" if same(function(model, x), expected) else "differs", flush=True)


if __name__ == "__main__":
    main()
