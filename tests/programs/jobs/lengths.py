"""An encoder that gets sequences of many lengths and is compiled for each, until torch gives up: lengths.py OUT.json

It also prints in the middle of its forward (a graph break), and a function of it cannot be compiled at all.
"""

import sys

import account
import encoder
import torch

LIMIT = 2


class Classifier(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = encoder.Encoder(layers=1)
        self.head = torch.nn.Linear(32, 2)

    def forward(self, tokens):
        x = self.encoder(tokens)
        print(end="")  # BREAK
        return self.head(x.mean(1))


def refused(graph, inputs):
    raise RuntimeError("this backend has no license")


def unlucky(x):
    return x.sin() + 1


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch._dynamo.config.recompile_limit = LIMIT
    model = torch.compile(Classifier(), dynamic=False)
    account.wait_for_word()
    with torch.no_grad():
        for length in (8, 12, 16):
            model(encoder.tokens(2, length))
    try:
        torch.compile(unlucky, backend=refused)(torch.ones(3))
    except torch._dynamo.exc.BackendCompilerFailed:
        pass
    account.write(sys.argv[1], limit=LIMIT)


main()
