"""A small text encoder, built as those of the libraries that people use: Encoder.layer.N.attention, ...output."""

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)

    def forward(self, x):
        def split(y):
            return y.view(*y.shape[:-1], self.heads, -1).transpose(1, 2)

        mixed = nn.functional.scaled_dot_product_attention(
            split(self.query(x)), split(self.key(x)), split(self.value(x))
        )
        return mixed.transpose(1, 2).flatten(2)


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attention = Attention(width, heads)
        self.norm = nn.LayerNorm(width)
        self.intermediate = nn.Linear(width, 2 * width)
        self.output = nn.Linear(2 * width, width)

    def forward(self, x):
        x = self.norm(x + self.attention(x))
        return x + self.output(nn.functional.gelu(self.intermediate(x)))


class Encoder(nn.Module):
    def __init__(self, layers=2, width=32, heads=4, words=100):
        super().__init__()
        self.embeddings = nn.Embedding(words, width)
        self.layer = nn.ModuleList(Layer(width, heads) for _ in range(layers))

    def forward(self, tokens):
        x = self.embeddings(tokens)
        for layer in self.layer:
            x = layer(x)
        return x


def tokens(rows, length):
    return torch.randint(0, 100, (rows, length))
