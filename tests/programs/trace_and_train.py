"""Compiles until it is asked to stop, without a backend, so that it traces nearly all the time; then trains.

Prints `ready <pid>`. Each line on stdin is what to do until the next one: `trace`, `train` or `end`; it
prints the word when it has begun.
"""

import os
import sys
import threading

import torch
import torch._dynamo

torch.manual_seed(0)
MODEL = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(24)])
TRAINED = torch.compile(MODEL, backend="aot_eager")
DATA = torch.randn(4, 8)
WORD = ["ready"]


def read_words():
    for line in sys.stdin:
        WORD[0] = line.strip()
    WORD[0] = "end"


def trace():
    torch._dynamo.reset()
    torch.compile(MODEL, backend="eager")(DATA)


def train():
    TRAINED(DATA).sum().backward()


train()
print("ready", os.getpid(), flush=True)
threading.Thread(target=read_words, daemon=True).start()
said = "ready"
while WORD[0] != "end":
    word = WORD[0]
    if word == "ready":
        threading.Event().wait(0.01)
        continue
    if word == "train" and said != word:
        train()  # after a reset it is compiled again
    (trace if word == "trace" else train)()
    if word != said:
        print(word, flush=True)
        said = word
print("end", flush=True)
