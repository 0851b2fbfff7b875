"""Records of compiles that never were: history.py SCENARIO. Prints `ready` with them as JSON.

  plain     forwards, backwards, a recompile, a failure, graph breaks, cache hits, a reset
  full      more compiles than are remembered
  hostile   objects and names never made by accident
  renamed   a version of torch that has none of the names
  busy      compiles that end all the time
"""
import collections
import dataclasses
import itertools
import json
import sys
import time
import traceback

import torch
from torch._dynamo import convert_frame, utils
from torch._dynamo.output_graph import GraphCompileReason

START_US = 1_700_000_000_000_000


class Version(str):
    pass


def add(compile_id, name="f", line=10, us=1000, **more):
    row = utils.metrics(
        **{
            "compile_id": compile_id,
            "co_name": name,
            "co_filename": "/user/model.py",
            "co_firstlineno": line,
            "start_time_us": START_US + 10_000 * len(utils._compilation_metrics),
            "duration_us": us,
            "is_forward": True,
            "has_guarded_code": True,
            "restart_reasons": set(),
            "dynamo_cumulative_compile_time_us": us,
            "pytorch_version": Version(torch.version.__version__),
            "dynamo_config": "{" + "x" * 2000 + "}",
            "feature_usage": {"fx_cache": True, "other": None},
            "stack_trace": ["Line: 1", "Line: 2"],
            **more,
        }
    )
    utils._compilation_metrics.append(row)
    if compile_id and not compile_id.startswith("!") and more.get("is_forward", True):
        frame = int(compile_id.split("/")[0])
        convert_frame.FRAME_COMPILE_COUNTER[frame] += 1
        convert_frame.FRAME_COUNTER = max(convert_frame.FRAME_COUNTER, frame + 1)
    return row


def backward(compile_id, us=500):
    nothing = dict.fromkeys(
        ("co_name", "co_filename", "co_firstlineno", "restart_reasons", "has_guarded_code",
         "dynamo_cumulative_compile_time_us")
    )
    add(compile_id, us=us, is_forward=False, backward_cumulative_compile_time_us=us, **nothing)


def break_at(reason, *stack):
    GraphCompileReason(reason, [traceback.FrameSummary(*f, lookup_line=False) for f in stack])


def plain():
    add("0/0", "before", 5, restart_reasons={"gone with the reset"})
    convert_frame.FRAME_COUNTER = 0
    convert_frame.FRAME_COMPILE_COUNTER.clear()
    add("0/0", "f", 10, restart_reasons={"twice", "other"}, recompile_reason=None)
    break_at("twice", ("/user/model.py", 12, "f"))
    break_at("other", ("/user/model.py", 11, "f"), ("/user/lib.py", 3, "g"))
    add("0/1", "f", 10, us=7000, restart_reasons={"twice"}, recompile_reason="0/0: x changed",
        aot_autograd_cumulative_compile_time_us=5000, inductor_cumulative_compile_time_us=3000)
    break_at("twice", ("/user/model.py", 12, "f"))
    add("1/0", "forward", 40)
    backward("1/0")
    break_at("generic_jump Tensor", ("/user/model.py", 44, "forward"))
    add("2/0", "forward", 60, fail_type="Unsupported", fail_reason="no", has_guarded_code=False)
    add("3/0", "cached", 70, aotautograd_local_cache_hit_count=1,
        inductor_fx_local_cache_hit_count=2)
    add("4/0", "inference", 80, aotautograd_local_cache_miss_count=1,
        aotautograd_remote_cache_hit_count=1, inductor_fx_local_cache_hit_count=1)
    break_at("unknown", ("/user/model.py", 3, "elsewhere"))
    if "is_runtime" in utils.FIELDS:
        add("4/0", is_runtime=True, co_name=None, is_forward=True)
        convert_frame.FRAME_COMPILE_COUNTER[4] -= 1
    utils.compilation_time_metrics.update({"compile_inner": [0.5, 0.25], "gc": [], "big": [1e-9] * 300})
    utils.counters["frames"]["total"] += 9
    utils.counters["inductor"]["fxgraph_cache_hit"] += 3


def full():
    for i in range(200):
        add(f"{i}/0", "f", 10, restart_reasons={"same"})
        break_at("same", ("/user/model.py", 12, "f"))


def hostile():
    name = "f\n\x1b[31mred\x1b[0m\u202e|\udcff"
    add("0/0", name, 10)
    backward("0/0")
    add("1/0", "f", "not a number", us="long", restart_reasons=7, is_forward="yes")
    add("2/0", "f", 2**70, us=-5, start_time_us=2**62)
    add(3.5 and None, "x" * 100_000)
    row = add("4/0")
    row.restart_reasons = [row, row]
    row.feature_usage = collections.defaultdict(list, {(1, 2): row, "self": row})
    utils._compilation_metrics.append("a string")
    utils._compilation_metrics.append(utils._compilation_metrics)
    cycle = utils.compilation_time_metrics
    cycle.update({"self": cycle, 5: [1.0], "words": ["a", 0.5, None], "long": [0.001] * 5000})
    utils.counters["self"] = utils.counters
    utils.counters["fine"] = {"a": "b", 4: 4, "n": 2}
    reasons = utils.graph_break_reasons
    reasons.append(reasons)
    GraphCompileReason("loop", reasons)
    GraphCompileReason(17, [])
    GraphCompileReason("good", [traceback.FrameSummary("/a\x1b[2J.py", 1, name, lookup_line=False)])


def endless():
    """Texts and tables without number."""
    utils._compilation_metrics = collections.deque()
    text = "t" * 60_000
    for i in range(1000):
        add(f"{i}/0", text, stack_trace=[text] * 200, fail_reason=text)
    for i in range(250):
        utils.counters[f"{text}{i}"] = {f"{i} {n}": n for n in range(2000)}
    for i in range(4000):
        utils.compilation_time_metrics[f"{i}"] = [0.5] * 1000


def renamed():
    for name in ("_compilation_metrics", "compilation_time_metrics", "graph_break_reasons", "counters"):
        delattr(utils, name)
    del convert_frame.FRAME_COUNTER


def busy():
    print("ready", flush=True)
    for n in itertools.count():
        add(f"{n}/0", f"f{n}", n, us=n + 1)
        if n % 100 == 0:
            convert_frame.FRAME_COMPILE_COUNTER.clear()
        time.sleep(0.003)


def plain_value(value):
    return sorted(value) if isinstance(value, set) else value


def say():
    names = [field.name for field in dataclasses.fields(utils.CompilationMetrics)]
    truth = {
        "metrics": [
            {name: plain_value(getattr(row, name)) for name in names}
            for row in utils._compilation_metrics
        ],
        "times": utils.compilation_time_metrics,
        "counters": utils.counters,
        "frames": convert_frame.FRAME_COUNTER,
    }
    print("ready " + json.dumps(truth), flush=True)


scenario = sys.argv[1]
globals()[scenario]()
if scenario in ("plain", "full"):
    say()
else:
    print("ready", flush=True)
time.sleep(3600)
