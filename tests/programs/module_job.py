"""A model whose modules take unequally long to compile.

    module_job.py OUT.json     prints `ready <pid>`, waits for a line on stdin, compiles a forward and a backward

Writes what torch itself says: {"paths": [where each operator of Dynamo's graph comes from, as the node's
nn_module_stack has it, and the number of operators]}.
"""

import json
import os
import sys

import torch
from torch._inductor.compile_fx import compile_fx


class Many(torch.nn.Module):
    def __init__(self, count):
        super().__init__()
        self.count = count
        self.scale = torch.nn.Parameter(torch.ones(8))

    def forward(self, x):
        for i in range(self.count):
            x = torch.sin(x * self.scale) + i
        return x


class Branch(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.heavy = Many(200)
        self.light = Many(4)

    def forward(self, x):
        return self.heavy(x) + self.light(x)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.branches = torch.nn.ModuleList([Branch()])

    def forward(self, x):
        for branch in self.branches:
            x = branch(x)
        return x.sum()


PATHS = {}


def noting_backend(graph, inputs):
    for node in graph.graph.nodes:
        stack = node.meta.get("nn_module_stack")
        if stack:
            source = list(stack.values())[-1][0]
            PATHS[source] = PATHS.get(source, 0) + 1
    return compile_fx(graph, inputs)


def main():
    print("ready", os.getpid(), flush=True)
    sys.stdin.readline()
    torch.compile(Net(), backend=noting_backend)(torch.ones(8)).backward()
    with open(sys.argv[1], "w") as file:
        json.dump({"paths": PATHS}, file)
    print("done", flush=True)


if __name__ == "__main__":
    main()
