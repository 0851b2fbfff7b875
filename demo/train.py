#!/usr/bin/env python3
"""Trains a small character-level transformer on the CPU with torch.compile.

An ordinary job: it imports nothing of dynprof-bpf and sets nothing for it. It does what real jobs
do to a compiler: a print in the middle of the model breaks the graph (Dynamo gives the frame up
once and tries again), a batch of another length makes it compile again, and the backward graphs are
compiled late, inside the first loss.backward().
"""

import argparse
import time

import torch
from torch import nn
from torch.nn import functional as F

TEXT = "the quick brown fox jumps over the lazy dog; "


def say(text):
    print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(x).chunk(3, dim=-1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm_1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm_2 = nn.LayerNorm(width)
        self.grow = nn.Linear(width, 4 * width)
        self.shrink = nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attention(self.norm_1(x))
        return x + self.shrink(F.gelu(self.grow(self.norm_2(x))))


class Transformer(nn.Module):
    def __init__(self, symbols, width=64, heads=4, layers=2, longest=64):
        super().__init__()
        self.symbol = nn.Embedding(symbols, width)
        self.place = nn.Embedding(longest, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, symbols)
        self.calls = 0

    def watch(self, x):
        # The sort of line that stays behind after debugging. Dynamo cannot put it into a graph.
        print(f"  activations {tuple(x.shape)}", flush=True)

    def forward(self, tokens, verbose=False):
        x = self.symbol(tokens) + self.place(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        if verbose:
            self.watch(x)
        return self.head(self.norm(x))


def batches(length, symbols, generator):
    """Endless (input, next character) pairs."""
    codes = torch.tensor([symbols.index(c) for c in TEXT * 8])
    while True:
        starts = torch.randint(len(codes) - length - 1, (16,), generator=generator)
        window = torch.stack([codes[s : s + length + 1] for s in starts.tolist()])
        yield window[:, :-1], window[:, 1:]


def train(model, optimizer, data, seconds, verbose=False):
    """Steps until the time is over, at least three; returns (steps, last loss)."""
    steps, end = 0, time.monotonic() + seconds
    while steps < 3 or time.monotonic() < end:
        tokens, wanted = next(data)
        scores = model(tokens, verbose=verbose)
        loss = F.cross_entropy(scores.flatten(0, 1), wanted.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
    return steps, loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--warmup-seconds", type=float, default=5.0, help="before the first step")
    parser.add_argument("--train-seconds", type=float, default=4.0, help="for each phase")
    options = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(2)
    generator = torch.Generator().manual_seed(0)
    symbols = sorted(set(TEXT))
    model = Transformer(len(symbols))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    compiled = torch.compile(model, dynamic=False)

    say(f"loading data ({options.warmup_seconds:g} s)")
    time.sleep(options.warmup_seconds)

    short, longer = batches(32, symbols, generator), batches(48, symbols, generator)
    for title, data, verbose in (
        ("step 1: compiles forward, then backward", short, False),
        ("longer batches: compiles again (recompile)", longer, False),
        ("with the forgotten print: a graph break", short, True),
    ):
        say(title)
        began = time.monotonic()
        train(compiled, optimizer, data, 0, verbose)
        say(f"  the first 3 steps took {time.monotonic() - began:.1f} s")
        # The print would drown the terminal: only the first steps of its phase are run.
        if not verbose:
            steps, loss = train(compiled, optimizer, data, options.train_seconds, verbose)
            say(f"  {steps} more steps, loss {loss:.3f}")
    say("done")


if __name__ == "__main__":
    main()
