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
from torch._inductor import async_compile, compile_fx, cpu_vec_isa, graph  # noqa: E402
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
    cpu_vec_isa.VecISA.check_build = lambda self, code: True
    async_compile.AsyncCompile.cpp_pybinding = lambda self, *arguments, **named: NotRun()
    torch._functorch.config.force_non_lazy_backward_lowering = True


def main():
    keep_what_inductor_writes()
    torch.manual_seed(0)
    compiled = []
    for model, x in ((Layers(), torch.randn(4, 6, 8)), (Convolutions(), torch.randn(2, 3, 8, 8))):
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
