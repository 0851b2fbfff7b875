"""Trains a text encoder of the size of BERT base (12 layers of width 768, 12 heads), compiled with Inductor.

    encoder_training.py [STEPS]

Prints `ready <pid>`, and `step <number> <seconds>` after each step.
"""

import os
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "programs" / "jobs"))

from encoder import Encoder, tokens  # noqa: E402


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    torch.manual_seed(0)
    model = Encoder(layers=12, width=768, heads=12)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    print("ready", os.getpid(), flush=True)
    time.sleep(2)  # so that the first compile is recorded as a whole

    @torch.compile
    def loss_of(batch):
        return model(batch).square().mean()

    for number in range(steps):
        began = time.monotonic()
        loss_of(tokens(8, 128)).backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {number} {time.monotonic() - began:.2f}", flush=True)


main()
