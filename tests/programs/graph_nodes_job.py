"""Compiles graphs whose nodes have every kind of argument, and writes what torch itself prints of those that are alive,
and of the guards on shapes.

usage: graph_nodes_job.py TRUTH.json
Prints "ready" when all is compiled and the truth is written.
"""

import gc
import json
import sys

import torch
import torch.fx
from torch._dynamo.utils import orig_code_map

torch.set_num_threads(1)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.drop = torch.nn.Dropout(0.1)

    def forward(self, x):
        y = self.linear(x).to(torch.float64).view(2, -1)
        y = torch.nn.functional.softmax(y, dim=-1, dtype=torch.float32)
        z = torch.cat([y, y + 1, 2.5 * y, 1e-07 + y], dim=1)[:, 1:3]
        z = z + torch.zeros(2, 2, device="cpu").to(memory_format=torch.contiguous_format)
        z += 1
        z = z.to(torch.device("cpu"), torch.float32)
        first, *_ = torch.split(y, [1, 1])
        joined = torch.einsum("ij,jk->ik", y, y.transpose(0, 1))
        return self.drop(z).sum(), y**2, -y, joined, z == 1, 1 / y, z[None, ..., 0], y.T, first, torch.Tensor.add(y, y)


def step(x):
    with torch.no_grad():
        y = x.relu()
    torch._dynamo.graph_break()
    return (y @ y).mean()


def branch(x):
    if x.size(0) > 3 and x.size(1) != 6:
        return x * 2
    return x + 1


def shape_guards():
    """Those that no list of the guard manager has, by compile id."""
    found = {}
    for code in {id(code): code for code in orig_code_map.values.values()}.values():
        for entry in torch._C._dynamo.eval_frame._debug_get_cache_entry_list(code):
            guards = entry.guard_manager.root.get_epilogue_lambda_guards()
            found[str(entry.compile_id)] = [text for guard in guards for text in guard.verbose_code_parts()]
    return found


def described(graph):
    rows = []
    for node in graph.nodes:
        meta = node.meta
        tensor = meta.get("tensor_meta")
        modules = meta.get("nn_module_stack") or meta.get("fwd_nn_module_stack")
        rows.append({
            "name": node.name,
            "op": node.op,
            "shape": [str(size) for size in tensor.shape] if hasattr(tensor, "shape") else None,
            "stride": [str(size) for size in tensor.stride] if hasattr(tensor, "shape") else None,
            "seq_nr": meta.get("seq_nr"),
            "trace": meta.get("stack_trace"),
            "module": list(modules.values())[-1][0] if modules else None,
        })
    return rows


def alive():
    """Each graph module that is alive: its compile id, torch's code for its graph, its nodes."""
    found = []
    for thing in gc.get_objects():
        try:
            if not isinstance(thing, torch.fx.GraphModule):
                continue
        except ReferenceError:
            continue
        graph = thing.__dict__["_graph"]
        compile_id = thing.__dict__["meta"].get("dynamo_compile_id")
        made = thing.__dict__.get("_code")
        found.append({
            "id": str(compile_id) if compile_id else None,
            "has_code": made is not None,
            "code": graph.python_code("self").src,
            "nodes": described(graph),
        })
    return found


def main():
    torch._dynamo.config.assume_static_by_default = True
    kept = []
    model = Model()
    compiled = torch.compile(model, backend="aot_eager")
    compiled(torch.ones(2, 4))[0].backward()
    dynamic = torch.compile(lambda x: (x * 2).sum(dim=-1, keepdim=True), backend="aot_eager", dynamic=True)
    dynamic(torch.ones(3, 5, requires_grad=True)).sum().backward()
    broken = torch.compile(step, backend="aot_eager")
    broken(torch.ones(3, 3))
    eager = torch.compile(lambda x: x.sin() + 1, backend="eager")
    eager(torch.ones(3))
    sizes = torch.compile(branch, backend="eager", dynamic=True)
    for shape in ((7, 5), (2, 5), (9, 8)):
        sizes(torch.ones(*shape))
    kept += [compiled, dynamic, broken, eager, sizes]
    with open(sys.argv[1], "w") as out:
        json.dump({"graphs": alive(), "shape_guards": shape_guards()}, out)
    print("ready", flush=True)
    sys.stdin.read()
    return kept


main()
