#!/usr/bin/env python3
"""Checks the GPU part of a chrome trace against what Kineto writes (output_json.cpp, 2025), which
viewers and readers such as HTA rely on; prints what is wrong.

  check_kineto.py TRACE...        exit status 0: nothing wrong, 1: something is, 2: usage

check_cpu() is what holds for any trace of Kineto's, check_gpu() for one with GPU work.
"""

import re
import sys
from collections import defaultdict

from check_chrome_trace import Problems, load

DEVICE_KEYS = (
    "id name totalGlobalMem computeMajor computeMinor maxThreadsPerBlock "
    "maxThreadsPerMultiprocessor regsPerBlock warpSize sharedMemPerBlock numSms "
    "regsPerMultiprocessor sharedMemPerBlockOptin sharedMemPerMultiprocessor"
).split()
# In this order; others may follow.
ARGUMENTS = {
    "kernel": [
        "queued", "device", "context", "stream", "correlation", "registers per thread",
        "shared memory", "blocks per SM", "warps per SM", "grid", "block",
        "est. achieved occupancy %",
    ],
    "gpu_memcpy": ["device", "context", "stream", "correlation", "bytes"],
    "gpu_memset": ["device", "context", "stream", "correlation", "bytes"],
    "cuda_runtime": ["cbid", "correlation"],
    "cuda_driver": ["cbid", "correlation"],
    "cuda_sync": ["cuda_sync_kind", "stream", "correlation", "device", "context"],
}  # fmt: skip
PEER_ARGUMENTS = ["fromDevice", "inDevice", "toDevice", "fromContext", "inContext", "toContext"]
MEMORY = "(Unknown|Pageable|Pinned|Device|Array|Managed|Device Static|Managed Static)"
NAMES = {
    "gpu_memcpy": rf"Memcpy (HtoD|DtoH|HtoA|AtoH|AtoA|AtoD|DtoA|DtoD|HtoH|PtoP) \({MEMORY} -> {MEMORY}\)",
    "gpu_memset": rf"Memset \({MEMORY}\)",
    "cuda_runtime": r"_{0,2}cuda[A-Z]\w*",
    "cuda_driver": r"cu[A-Z]\w*",
    "cuda_sync": "(Event|Stream|Context) Sync|Stream Wait Event",
}
ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
SORT_BASE = 5000000


def check_cpu(trace):
    problems = Problems()
    if trace.get("schemaVersion") != 1:
        problems.add("schemaVersion is not 1")
    if trace.get("displayTimeUnit") != "ms" or not isinstance(trace.get("baseTimeNanoseconds"), int):
        problems.add("displayTimeUnit or baseTimeNanoseconds")
    for number, event in enumerate(trace["traceEvents"]):
        wanted = {"X": "ph cat name pid tid ts dur", "M": "ph name pid tid ts args"}
        missing = set(wanted.get(event.get("ph"), "ph").split()) - set(event)
        if missing:
            problems.add(f"event {number}: no {', '.join(sorted(missing))}")
    return list(problems)


def _check_slice(number, event, problems):
    category, args = event["cat"], event.get("args", {})
    wanted = ARGUMENTS[category]
    if category == "gpu_memcpy" and "fromDevice" in args:
        wanted = PEER_ARGUMENTS + wanted
    if list(args)[: len(wanted)] != wanted:
        problems.add(f"event {number}: {category} has {list(args)}")
        return
    if category in NAMES and not re.fullmatch(NAMES[category], event["name"]):
        problems.add(f"event {number}: {category} is called {event['name']!r}")
    if category in ON_GPU:
        if (event["pid"], event["tid"]) != (args["device"], args["stream"]):
            problems.add(f"event {number}: not at its device and stream")
    if category == "kernel":
        for key in ("grid", "block"):
            if len(args[key]) != 3 or min(args[key]) < 1:
                problems.add(f"event {number}: {key} {args[key]}")
    if category == "cuda_sync" and event["tid"] != args["stream"] + 1000000:
        problems.add(f"event {number}: not in its stream's row of waits")


def _check_flows(slices, flows, problems):
    starts = {(s["pid"], s["tid"], s["ts"]): s for s in slices}
    ends = defaultdict(list)
    begins = {}
    for flow in flows:
        if flow.get("name") != "ac2g":
            problems.add(f"flow {flow['id']} is called {flow.get('name')!r}")
        at = starts.get((flow["pid"], flow["tid"], flow["ts"]))
        if at is None:
            problems.add(f"flow {flow['id']}: no slice begins where it does")
            continue
        if at["args"]["correlation"] != flow["id"]:
            problems.add(f"flow {flow['id']}: its slice has {at['args']['correlation']}")
        if flow["ph"] == "s":
            if flow["id"] in begins:
                problems.add(f"flow {flow['id']} starts twice")
            begins[flow["id"]] = flow
            if at["cat"] not in ("cuda_runtime", "cuda_driver"):
                problems.add(f"flow {flow['id']} starts at a {at['cat']}")
        else:
            ends[flow["id"]].append(flow)
            if flow.get("bp") != "e" or at["cat"] not in ON_GPU:
                problems.add(f"flow {flow['id']} ends at a {at['cat']}, bp {flow.get('bp')!r}")
    for ident, list_ in ends.items():
        if ident not in begins:
            problems.add(f"flow {ident} has no start")
        elif any(end["ts"] < begins[ident]["ts"] for end in list_):
            problems.add(f"flow {ident} ends before it starts")
    return begins, ends


def check_gpu(trace):
    """Of one process' trace: several have rows and flows moved apart."""
    problems = Problems(check_cpu(trace))
    for device in trace.get("deviceProperties", []):
        if list(device) != DEVICE_KEYS:
            problems.add(f"deviceProperties: {list(device)}")
    slices = [e for e in trace["traceEvents"] if e["ph"] == "X" and e["cat"] in ARGUMENTS]
    for number, event in enumerate(slices):
        _check_slice(number, event, problems)
    if problems:
        return list(problems)
    flows = [e for e in trace["traceEvents"] if e["ph"] in "sf" and e["cat"] == "ac2g"]
    begins, ends = _check_flows(slices, flows, problems)
    # 0: seen by a probe on CUDA itself, which cannot know it.
    calls = [
        s["args"]["correlation"]
        for s in slices
        if s["cat"] in ("cuda_runtime", "cuda_driver") and s["args"]["correlation"] != 0
    ]
    if len(calls) != len(set(calls)):
        problems.add("a correlation id stands at two calls")
    work = [s for s in slices if s["cat"] in ON_GPU]
    if sum(map(len, ends.values())) != sum(s["args"]["correlation"] in begins for s in work):
        problems.add("not every piece of GPU work has its arrow")
    gpus = {s["pid"] for s in work}
    described = {device["id"] for device in trace.get("deviceProperties", [])}
    if not gpus <= described:
        problems.add(f"deviceProperties has {described}, work is on {gpus}")
    metadata = {
        (e["name"], e["pid"], e["tid"]): e["args"] for e in trace["traceEvents"] if e["ph"] == "M"
    }
    for gpu in gpus:
        if metadata.get(("process_labels", gpu, 0)) != {"labels": f"GPU {gpu}"}:
            problems.add(f"GPU {gpu} has no label")
        if metadata.get(("process_sort_index", gpu, 0)) != {"sort_index": SORT_BASE + gpu}:
            problems.add(f"GPU {gpu} has no sort index")
    for s in work:
        if metadata.get(("thread_name", s["pid"], s["tid"])) != {"name": f"stream {s['tid']} "}:
            problems.add(f"stream {s['tid']} has no name")
        if metadata.get(("thread_sort_index", s["pid"], s["tid"])) != {"sort_index": s["tid"]}:
            problems.add(f"stream {s['tid']} has no sort index")
    return list(problems)


def main(paths):
    if not paths:
        print(__doc__, file=sys.stderr)
        return 2
    wrong = False
    for path in paths:
        for problem in check_gpu(load(path)):
            print(f"{path}: {problem}")
            wrong = True
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
