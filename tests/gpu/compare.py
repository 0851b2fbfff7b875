#!/usr/bin/env python3
"""Holds a recording of tests/gpu/train_job.py against torch.profiler's trace of the same work.

    compare.py run --build DIR --folder DIR     both, on this machine's GPU; see check.sh
    compare.py traces OURS THEIRS               two traces that are there already
    compare.py selftest                         does it find what differs? needs no GPU

Compared: kernels by name and how often; copies and memsets by name; the median duration of each (1 us or 1 %, and as
much again as the two differ in torch.profiler's own two halves), but for copies of pageable memory; that each arrow
comes from a call of the same name; the names of kernels that probes on CUDA see launched.
"""

import argparse
import statistics
import sys
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests" / "compat"), str(ROOT / "tests" / "gpu")]

import check_chrome_trace  # noqa: E402
import check_kineto  # noqa: E402
from told_job import REFUSED, TRACED, WITHOUT, Job, Recording  # noqa: E402

TRAIN = ROOT / "tests" / "gpu" / "train_job.py"

ON_GPU = check_kineto.ON_GPU


def work_of(trace):
    """{(category, name): [(duration in us, name of the call that launched it), ...]}"""
    slices = [e for e in trace["traceEvents"] if e.get("ph") == "X"]
    calls = {
        e["args"]["correlation"]: e["name"]
        for e in slices
        if e.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in e.get("args", {})
    }
    found = defaultdict(list)
    for e in slices:
        if e.get("cat") in ON_GPU:
            call = calls.get(e["args"]["correlation"], "")
            found[e["cat"], e["name"]].append((float(e["dur"]), call))
    return found


def compare(ours, theirs):
    """What differs, one sentence each."""
    wrong = []
    a, b = work_of(ours), work_of(theirs)
    for key in sorted(set(a) | set(b)):
        if len(a[key]) != len(b[key]):
            wrong.append(f"{key}: {len(a[key])} times, torch.profiler has {len(b[key])}")
            continue
        times = [statistics.median(duration for duration, _ in side[key]) for side in (a, b)]
        halves = [d for d, _ in b[key]]
        middle = len(halves) // 2
        noise = 0.0
        if middle:
            noise = abs(statistics.median(halves[:middle]) - statistics.median(halves[middle:]))
        # How long a copy of pageable memory takes depends on the CPU that copies it to the driver's memory.
        if "Pageable" not in key[1] and abs(times[0] - times[1]) > max(1.0, 0.01 * times[1]) + noise:
            wrong.append(f"{key}: {times[0]:.2f} us, torch.profiler has {times[1]:.2f}")
        launched = [Counter(call for _, call in side[key]) for side in (a, b)]
        if launched[0] != launched[1]:
            wrong.append(f"{key}: launched by {launched[0]}, torch.profiler has {launched[1]}")
    return wrong


def traced_calls(directory):
    """How often each call was made, by (name, callback id)."""
    trace = check_chrome_trace.load(directory / "trace.json.gz")
    return Counter(
        (e["name"], e["args"]["cbid"])
        for e in trace["traceEvents"]
        if e.get("cat") in ("cuda_runtime", "cuda_driver")
    )


def names_by_probes(probed, theirs):
    """What differs between torch.profiler's kernels and those that probes saw launched. A CUDA graph is one launch."""
    launches = Counter(
        e["args"].get("kernel") for e in probed["traceEvents"]
        if e.get("cat") == "cuda_driver" and e["name"].startswith("cuLaunchKernel")
    )  # fmt: skip
    wanted = Counter()
    for (kind, name), found in work_of(theirs).items():
        if kind == "kernel":
            wanted[name] += sum("Graph" not in call for _, call in found)
    return [
        f"launches of {name}: {launches[name]} by probes, torch.profiler has {wanted[name]}"
        for name in sorted(set(launches) | set(wanted), key=str)
        if launches[name] != wanted[name]
    ]


def run(build, folder):
    job = Job(TRAIN, build / "libdynprof_cupti.so").await_ready()
    idle = min(job.work() for _ in range(3))

    def record(job, name, mode="on", sign=TRACED, options=()):
        recording = Recording(build, folder, job, name, mode, sign, options)
        seconds = job.work()
        return seconds, recording.stop()

    first, attached = record(job, "first")
    second, again = record(job, "second")
    sampled, _ = record(job, "sampled", options=["--sampled-launch-stacks"])
    after = min(job.work() for _ in range(3))
    # torch.profiler keeps its CUPTI subscription for the rest of the process, or did up to mid-2026.
    job.work(folder / "theirs.json")
    _, third = record(job, "third", "auto", f"{TRACED}|{REFUSED}")
    job.end()
    plain = Job(TRAIN).await_ready()
    bare = min(plain.work() for _ in range(3))
    probed, _ = record(plain, "probed", "auto", WITHOUT)
    plain.end()

    theirs = check_chrome_trace.load(folder / "theirs.json")
    wrong = []
    for name in ("first", "second", "sampled"):
        ours = check_chrome_trace.load(folder / name / "trace.json.gz")
        wrong += [f"{name}: {text}" for text in check_chrome_trace.check(ours)]
        wrong += [f"{name}: {text}" for text in check_kineto.check_gpu(ours)]
        wrong += [f"{name}: {text}" for text in compare(ours, theirs)]
    probed_trace = check_chrome_trace.load(folder / "probed" / "trace.json.gz")
    wrong += [f"probed: {text}" for text in names_by_probes(probed_trace, theirs)]
    calls = traced_calls(folder / "first")
    print("measured, for docs/concepts/gpu.md")
    print(f"  A one round of work: {bare:.3f} s without the library, {idle:.3f} s with it idle,"
          f" {first:.3f} and {second:.3f} s recorded, {sampled:.3f} s with sampled stacks, {after:.3f} s after,"
          f" {probed:.3f} s by probes")  # fmt: skip
    print(f"  B calls by callback id (211: cudaLaunchKernel, 505: CUDA 13's own): {dict(calls)}")
    print(f"  C attaching to a job that runs: {attached.attach_seconds:.2f} s, again:"
          f" {again.attach_seconds:.2f} s")  # fmt: skip
    print("  D the graphs were captured before: see whether kernels of graphs differ below")
    print(f"  E after torch.profiler: {third.said}")
    print(f"  F by probes on the driver: {dict(traced_calls(folder / 'probed'))}")
    for text in wrong:
        print(f"WRONG {text}")
    print(f"{'FAILED' if wrong else 'passed'}: {len(wrong)} differences")
    return 1 if wrong else 0


def selftest():
    """Two traces that are the same, and each way of differing."""

    def trace(name="k", duration=10.0, call="cudaLaunchKernel", count=4):
        events = []
        for i in range(count):
            events.append({"ph": "X", "cat": "cuda_runtime", "name": call, "dur": 5,
                           "args": {"correlation": i}})  # fmt: skip
            events.append({"ph": "X", "cat": "kernel", "name": name, "dur": duration,
                           "args": {"correlation": i}})  # fmt: skip
        return {"traceEvents": events}

    assert compare(trace(), trace()) == []
    assert compare(trace(duration=10.9), trace()) == [], "within 1 us"
    assert compare(trace(duration=1009.0), trace(duration=1000.0)) == [], "within 1 %"
    for other in ({"name": "other"}, {"duration": 12.0}, {"call": "cuLaunchKernel"}, {"count": 5}):
        assert compare(trace(**other), trace()), other
    probed = {"traceEvents": [
        {"ph": "X", "cat": "cuda_driver", "name": "cuLaunchKernel", "args": {"kernel": "k"}},
    ] * 4}  # fmt: skip
    assert names_by_probes(probed, trace()) == []
    assert names_by_probes(probed, trace(call="cudaGraphLaunch"))
    assert names_by_probes(probed, trace(name="other"))
    print("compare.py finds what differs")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    both = verbs.add_parser("run")
    both.add_argument("--build", type=Path, required=True)
    both.add_argument("--folder", type=Path, required=True)
    traces = verbs.add_parser("traces")
    traces.add_argument("ours", type=Path)
    traces.add_argument("theirs", type=Path)
    verbs.add_parser("selftest")
    options = parser.parse_args()
    if options.verb == "selftest":
        return selftest()
    if options.verb == "run":
        return run(options.build.resolve(), options.folder.resolve())
    wrong = compare(
        check_chrome_trace.load(options.ours), check_chrome_trace.load(options.theirs)
    )
    for text in wrong:
        print(text)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
