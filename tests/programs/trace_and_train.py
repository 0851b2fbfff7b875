"""Compiles until it is asked to stop: with a backend that does nothing, so that it traces nearly all the time, or with
one that lowers the graph of one compile again and again; or trains.

Prints `ready <pid>`. Each line on stdin is what to do until the next one: `trace`, `lower`, `train` or `end`; it
prints the word when it has begun, for `lower` when the backend has.
"""

import os
import sys
import threading

import torch
import torch._dynamo
import torch._inductor.compile_fx
import torch._inductor.config

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


def lower_again_and_again(graph, inputs):
    print("lower", flush=True)
    while WORD[0] == "lower":
        done = torch._inductor.compile_fx.compile_fx(graph, inputs)
    return done


def lower():
    torch._dynamo.reset()
    with torch._inductor.config.patch(fx_graph_cache=False):
        torch.compile(MODEL, backend=lower_again_and_again)(DATA)


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
    {"trace": trace, "lower": lower, "train": train}[word]()
    if word not in (said, "lower"):
        print(word, flush=True)
    said = word
print("end", flush=True)
