"""What torch says of the compiles of this process, for the tests to compare with.

{"pid", "rank": of RANK or null, "compiles": [{"id", "forward", "function", "begin_us", "wall_s", "reason", "failed"}],
 "breaks": {torch's text: count}, "caches": {"fx_hits", "fx_misses", "aot_hits", "aot_misses"}}

`wall_s` is of torch's own duration of the compile. What a job adds stands beside these.
"""

import json
import os
import sys

from torch._dynamo.utils import counters, get_compilation_metrics


def wall_s(metrics):
    us = metrics.dynamo_cumulative_compile_time_us or metrics.backward_cumulative_compile_time_us
    return (us or metrics.duration_us or 0) / 1e6


def account(**more):
    inductor, aot = counters["inductor"], counters["aot_autograd"]
    return {
        "pid": os.getpid(),
        "rank": os.environ.get("RANK"),
        "compiles": [
            {
                "id": row.compile_id,
                "forward": row.is_forward is not False,
                "function": row.co_name,
                "begin_us": row.start_time_us,
                "wall_s": wall_s(row),
                "reason": row.recompile_reason,
                "failed": row.fail_reason,
            }
            for row in get_compilation_metrics()
        ],
        "breaks": dict(counters["graph_break"]),
        "caches": {
            "fx_hits": inductor["fxgraph_cache_hit"],
            "fx_misses": inductor["fxgraph_cache_miss"],
            "aot_hits": aot["autograd_cache_hit"],
            "aot_misses": aot["autograd_cache_miss"],
        },
        **more,
    }


def wait_for_word():
    """Prints `ready <pid>` and returns when a line comes."""
    print("ready", os.getpid(), flush=True)
    sys.stdin.readline()


def write(path, **more):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(account(**more), file, indent=1)
    print("done", flush=True)
