"""Compiles with three backends and says, on demand, what torch itself knows of what was generated.

usage: generated_job.py TRUTH.json
Prints "ready" when all is compiled and the truth is written. Lines on stdin are executed (the tests'
own, to plant things); "ok" is printed after each.
"""

import dis
import json
import sys

import torch
import torch._dynamo.convert_frame
import torch._dynamo.eval_frame
import torch._inductor.codecache as codecache
from torch._dynamo.utils import orig_code_map
from torch._guards import CompileContext
from torch.fx import graph_module

torch.set_num_threads(1)
LOADED = []  # (compile id, path) of each module Inductor loads, at the time it does
SOURCES = {}  # <eval_with_key>.N -> compile id at the time its code was made


def current_id():
    compile_id = CompileContext.current_compile_id()
    return "" if compile_id is None else str(compile_id)


def watch_loads(cls=codecache.PyCodeCache, load=codecache.PyCodeCache.load_by_key_path):
    def watched(key, path, *args, **options):
        LOADED.append((current_id(), path))
        return load(key, path, *args, **options)

    cls.load_by_key_path = staticmethod(watched)


def watch_sources(loader=graph_module._loader):
    cache = loader.cache

    def watched(*args, **options):
        key = cache(*args, **options)
        SOURCES[key] = current_id()
        return key

    loader.cache = watched


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        x = self.linear(x).sin()
        torch._dynamo.graph_break()
        return x * 2


def scaled(x, factor):
    return x * factor + 1


def compile_all():
    for backend in ("inductor", "aot_eager", "eager"):
        block = Block()
        # A code object of its own for each backend: else they would recompile one another's.
        block.forward = torch.compile(clone(Block.forward).__get__(block), backend=backend)
        block(torch.ones(2, 4)).sum().backward()
        recompiled = torch.compile(clone(scaled), backend=backend, dynamic=False)
        recompiled(torch.ones(3), 2)
        recompiled(torch.ones(3), 3)
        KEPT.append((block, recompiled))


KEPT = []


def clone(function):
    code = function.__code__.replace()
    return type(function)(code, function.__globals__, function.__name__, None, function.__closure__)


def instructions(code):
    return [
        [i.offset, i.opname, i.arg or 0, i.argval if isinstance(i.argval, str) else None]
        for i in dis.get_instructions(code)
    ]


def reasons(manager):
    """What torch prints behind each guard: from the guards themselves, which C++ holds."""
    found = []
    for guard in manager.get_leaf_guards():
        for text in guard.verbose_code_parts():
            found.append([part.strip(" #") for part in text.partition("#")[::2]])
    for child in manager.get_child_managers():
        found += reasons(child)
    return found


def truth():
    entries = []
    originals = {id(code): code for code in orig_code_map.values.values()}
    for original in originals.values():
        for entry in torch._C._dynamo.eval_frame._debug_get_cache_entry_list(original):
            entries.append(
                {
                    "id": str(entry.compile_id),
                    "name": entry.code.co_name,
                    "line": original.co_firstlineno,
                    "names": list(entry.code.co_names),
                    "guards": list(entry.guard_manager.code_parts),
                    "reasons": reasons(entry.guard_manager.root),
                    "instructions": instructions(entry.code),
                }
            )
    return {
        "entries": entries,
        "loaded": LOADED,
        "sources": SOURCES,
        "texts": dict(graph_module._loader.eval_cache),
    }


def main():
    watch_loads()
    watch_sources()
    compile_all()
    with open(sys.argv[1], "w") as out:
        json.dump(truth(), out)
    print("ready", flush=True)
    for line in sys.stdin:
        exec(line, globals())
        print("ok", flush=True)


if __name__ == "__main__":
    main()
