"""What torch itself says of which nodes its C++ kernels are made of: kernel_provenance.py FOLDER

Compiles some models for the CPU, forward and backward, with provenance tracking on and without running a compiler. Of
each graph it writes N.wrapper.py, N.graph.txt (post-grad, as torch logs it) and N.json ({"nodes": {kernel: [nodes]},
"modules": {node: nn.Module}}); a model has two graphs. Prints "ready", and ends at the end of its input.
"""

import json
import os
import sys
from pathlib import Path

os.environ["INDUCTOR_PROVENANCE"] = "1"
os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"

import torch  # noqa: E402
import torch._functorch.config  # noqa: E402
import torch._inductor.debug  # noqa: E402
from torch import nn  # noqa: E402
from torch._inductor import async_compile, compile_fx, cpp_builder, cpu_vec_isa, graph  # noqa: E402
from torch.nn import functional  # noqa: E402

GRAPHS, WRAPPERS = [], []


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.query, self.key, self.value, self.out = (nn.Linear(8, 8, bias=False) for _ in range(4))

    def forward(self, x):
        y = self.norm(x)
        weights = self.query(y) @ self.key(y).sin().transpose(-1, -2)
        mixed = weights.softmax(-1) @ self.value(y).exp()
        return self.out(mixed.relu()) + x


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(*(Attention() for _ in range(2)))
        self.grow, self.shrink = nn.Linear(8, 32), nn.Linear(32, 8)

    def forward(self, x):
        x = self.blocks(x)
        return x + self.shrink(functional.gelu(self.grow(x)))


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.second, self.head = nn.Conv2d(8, 8, 3, padding=1), nn.Linear(8, 4)

    def forward(self, x):
        y = functional.relu(self.norm(self.first(x)))
        y = self.second(y) + y
        return self.head(y.mean((2, 3)).tanh()).softmax(-1)


class SelfAttention(nn.Module):
    """As transformers lays BERT out: a module for each part of a layer."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.dropout = nn.Dropout(0.1)

    def split(self, x):
        return x.view(x.shape[0], x.shape[1], self.heads, -1).transpose(1, 2)

    def forward(self, x):
        query, key, value = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = query @ key.transpose(-1, -2) / 2.0
        weights = self.dropout(functional.softmax(scores, dim=-1))
        return (weights @ value).transpose(1, 2).reshape(x.shape)


class Output(nn.Module):
    def __init__(self, inner, width):
        super().__init__()
        self.dense, self.norm, self.dropout = nn.Linear(inner, width), nn.LayerNorm(width), nn.Dropout(0.1)

    def forward(self, x, added):
        x = self.dense(x)
        x = self.dropout(x)
        return self.norm(x + added)


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attention, self.attended = SelfAttention(width, heads), Output(width, width)
        self.grow, self.output = nn.Linear(width, 4 * width), Output(4 * width, width)

    def forward(self, x):
        x = self.attended(self.attention(x), x)
        return self.output(functional.gelu(self.grow(x)), x)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places, self.norm = nn.Embedding(50, 16), nn.Embedding(12, 16), nn.LayerNorm(16)
        self.layers = nn.ModuleList(Layer(16, 2) for _ in range(3))
        self.head = nn.Linear(16, 50)

    def forward(self, tokens):
        x = self.norm(self.tokens(tokens) + self.places(torch.arange(tokens.shape[1])))
        for layer in self.layers:
            x = layer(x)
        return functional.cross_entropy(self.head(x).flatten(0, 1), tokens.flatten())


class Block(nn.Module):
    """A ResNet's: some have a third convolution."""

    def __init__(self, before, after, stride):
        super().__init__()
        self.first, self.second = nn.Conv2d(before, after, 3, stride, 1), nn.Conv2d(after, after, 3, 1, 1)
        self.norm, self.other = nn.BatchNorm2d(after), nn.BatchNorm2d(after)
        self.shortcut = nn.Conv2d(before, after, 1, stride) if stride > 1 else None

    def forward(self, x):
        y = functional.relu(self.norm(self.first(x)))
        y = self.other(self.second(y))
        if self.shortcut is not None:
            x = self.shortcut(x)
        return functional.relu(y + x)


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(Block(4, 4, 1), Block(4, 8, 2), Block(8, 8, 1), Block(8, 16, 2))

    def forward(self, x):
        return self.blocks(x).mean((2, 3))


class Scale(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


class Gated(nn.Module):
    """As in Llama; one line each, a module that runs twice, and one layer right behind the other."""

    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(Scale(8) for _ in range(3))
        self.gate, self.up, self.down = nn.Linear(8, 24), nn.Linear(8, 24), nn.Linear(24, 8)

    def forward(self, x):
        for norm in self.norms:
            x = x + self.down(functional.silu(self.gate(norm(x))) * self.up(x))
        for norm in self.norms:
            x = norm(x)
        return x


def modules_of(graph):
    found = {}
    for node in graph.nodes:
        stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack")
        if stack:
            found[node.name] = list(stack.values())[-1][0]
    return found


class NotRun:
    def __call__(self, *arguments, **named):
        pass


def keep_what_inductor_writes():
    def logged(name, *arguments, **named):
        metadata = named.get("metadata_fn") or (arguments[0] if arguments else dict)
        payload = named.get("payload_fn") or (arguments[1] if len(arguments) > 1 else None)
        if payload and metadata().get("name") == "inductor_post_grad_graph":
            GRAPHS.append(payload())
        return trace_structured(name, *arguments, **named)

    def codegen(self):
        written = lowered(self)
        nodes = dict(torch._inductor.debug._inductor_triton_kernel_to_post_grad_node_info)
        WRAPPERS.append((written[0].value, nodes, modules_of(self.module.graph)))
        return written

    trace_structured, compile_fx.trace_structured = compile_fx.trace_structured, logged
    lowered, graph.GraphLowering.codegen = graph.GraphLowering.codegen, codegen
    cpp_builder.cpp_compiler_search = lambda search: "g++"
    cpp_builder.is_gcc = lambda compiler=None: True
    cpu_vec_isa.VecISA.check_build = lambda self, code: True
    async_compile.AsyncCompile.cpp_pybinding = lambda self, *arguments, **named: NotRun()
    torch._functorch.config.force_non_lazy_backward_lowering = True


def main():
    keep_what_inductor_writes()
    torch.manual_seed(0)
    compiled = []
    for model, x in (
        (Layers(), torch.randn(4, 6, 8)),
        (Convolutions(), torch.randn(2, 3, 8, 8)),
        (Encoder(), torch.randint(0, 50, (2, 12))),
        (Residual(), torch.randn(2, 4, 16, 16)),
        (Gated(), torch.randn(2, 5, 8)),
    ):
        compiled.append(torch.compile(model))
        compiled[-1](x)
    folder = Path(sys.argv[1])
    for number, (text, (wrapper, nodes, modules)) in enumerate(zip(GRAPHS, WRAPPERS, strict=True)):
        (folder / f"{number}.graph.txt").write_text(text)
        (folder / f"{number}.wrapper.py").write_text(wrapper)
        truth = {}
        for handle, names in nodes.items():
            truth.setdefault(handle.rpartition(":")[0], []).extend(names)
        (folder / f"{number}.json").write_text(json.dumps({"nodes": truth, "modules": modules}))
    print("ready", flush=True)
    sys.stdin.read()
    return compiled


main()
