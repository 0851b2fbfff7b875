"""Functions whose graphs break for the reasons that real jobs have, for what a decompiler makes of them.

Prints "ready" and compiles after a line on stdin; then "done". Each further line is a path of decompiled source named
bytecode_FUNCTION_decompiled.py: that function, with the compiled graphs and resume functions of the job as its globals,
is called in place of the compiled one, and "equal" or "differs" is printed.
"""

import inspect
import logging
import math
import sys
from pathlib import Path

import torch
import torch._dynamo

LOG = logging.getLogger("job")
SCALES = [0.5, 2.0]


def logs_a_loss(x, y, *, weight=0.25):
    loss = ((x - y) ** 2).mean() * weight
    LOG.warning("loss %s", loss.detach())
    return loss + x.abs().sum()


def branches_on_data(x):
    norm = x.norm()
    if norm > 4:
        x = x / norm
    return {"x": x, "norm": norm, "shape": tuple(x.shape)}


def clips(x, limit=1.5):
    worst = x.abs().max().item()
    factor = min(1.0, limit / (worst + 1e-6))
    return x * factor, factor


def keeps_a_list(x):
    parts, rest = [x.sum()], {"first": x[0]}
    torch._dynamo.graph_break()
    parts.append(torch.relu(x * SCALES[0]).sum())
    torch._dynamo.graph_break()
    return torch.stack(parts), rest, x * SCALES[1]


def formats(x, name="step"):
    top = x.max()
    text = f"{name}: {len(x)} rows"
    print(text, file=sys.stderr)
    return text, top + math.pi, [x[0], x[-1]]


def as_numbers(result):
    if isinstance(result, torch.Tensor):
        return [round(value, 4) for value in result.flatten().tolist()]
    if isinstance(result, dict):
        return {key: as_numbers(value) for key, value in result.items()}
    if isinstance(result, (tuple, list)):
        return [as_numbers(value) for value in result]
    return round(result, 4) if isinstance(result, float) else result


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    x, y = torch.randn(6, 4), torch.randn(6, 4)
    calls = {function: (x, y) if function is logs_a_loss else (x,)
             for function in (logs_a_loss, branches_on_data, clips, keeps_a_list, formats)}
    expected = {function.__name__: as_numbers(function(*inputs)) for function, inputs in calls.items()}
    print("ready", flush=True)
    sys.stdin.readline()
    for function, inputs in calls.items():
        assert as_numbers(torch.compile(function, backend="eager")(*inputs)) == expected[function.__name__]
    print("done", flush=True)
    for line in sys.stdin:
        path = Path(line.strip())
        name = path.stem.removeprefix("bytecode_").removesuffix("_decompiled")
        scope = dict(globals())
        exec(path.read_text(), scope)
        original = globals()[name]
        # Defaults are not part of a code object, and depyf makes keyword-only arguments ordinary ones.
        given = inspect.signature(original).bind(*calls[original])
        given.apply_defaults()
        torch._dynamo.config.disable = True  # the resume functions run as they are
        same = as_numbers(scope[name](**given.arguments)) == expected[name]
        print("equal" if same else "differs", flush=True)


if __name__ == "__main__":
    main()
