#!/usr/bin/env python3
"""Live recordings of a job on a GPU that was started without libdynprof_cupti.so, by `record --gpu on`.

    live.py --build DIR --folder DIR [--rounds N] [--every SECONDS] [--steps N]

The job is tests/gpu/train_job.py: everything is compiled, and its CUDA graphs captured, before the first recording.
N recordings of one round of work each must show the same work; after all of them the job must map the same files as
after the first, and have about as many threads. A recording of N steps must show that work N / 20 times. Then
torch.profiler: afterwards, when it must show the same as a round; and, in jobs of their own, for the first time while
recorded, and before the recording. It keeps CUPTI from its first use on.
"""

import sys
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests" / "compat"), str(ROOT / "tests" / "gpu")]

import check_chrome_trace  # noqa: E402
import check_kineto  # noqa: E402
import compare  # noqa: E402
from told_job import REFUSED, TRACED, WITHOUT, Job, Recording, arguments, resolved, tell, verdict  # noqa: E402

TRAIN = ROOT / "tests" / "gpu" / "train_job.py"
STEPS_OF_A_ROUND = 20
# CUPTI starts some of its own when it likes; they must not grow with the recordings.
CUPTI_THREADS = 2


def counts(trace):
    return Counter({key: len(found) for key, found in compare.work_of(trace).items()})


def kernels(work):
    return sum(n for (kind, _), n in work.items() if kind == "kernel")


def differences(what, found, wanted):
    return [
        f"{what}: {key}: {found[key]} times, not {wanted[key]}"
        for key in sorted(set(found) | set(wanted))
        if found[key] != wanted[key]
    ]


def unassigned(trace):
    """Kernels without a call that launched them, Triton's without a trace id, and how many have one."""
    slices = [e for e in trace["traceEvents"] if e.get("ph") == "X"]
    calls = {
        e["args"]["correlation"]: e
        for e in slices
        if e.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in e.get("args", {})
    }
    kernels = [e for e in slices if e.get("cat") == "kernel"]
    alone = Counter(e["name"] for e in kernels if e["args"]["correlation"] not in calls)
    without = Counter(
        e["name"] for e in kernels if e["name"].startswith("triton_") and "trace_id" not in e["args"]
    )
    traced = sum("trace_id" in e["args"] for e in kernels)
    wrong = [f"no call launched {name}, {n} times" for name, n in alone.items()]
    wrong += [f"{name} has no trace id, {n} times" for name, n in without.items()]
    return wrong, f"{traced} of {len(kernels)} kernels have a trace id"


def live(options, job):
    wrong = []
    before = job.maps(), job.threads()
    attach, stop, round_counts, after_first = [], [], [], None
    for number in range(options.rounds):
        began = time.monotonic()
        recording = Recording(options.build, options.folder, job, f"live{number}")
        job.work()
        recording.stop()
        attach.append(recording.attach_seconds)
        stop.append(recording.stop_seconds)
        trace = check_chrome_trace.load(recording.folder / "trace.json.gz")
        if number == 0:
            after_first = job.maps(), job.threads()
            wrong += [f"live0: {text}" for text in check_kineto.check_gpu(trace)]
            texts, told = unassigned(trace)
            wrong += [f"live0: {text}" for text in texts]
            print(f"  {told}")
            tell(wrong)
        round_counts.append(counts(trace))
        # At once, so that a run that is stopped has told what it found.
        wrong += tell(differences(f"live{number}", round_counts[-1], round_counts[0]))
        if number % 10 == 9:
            print(f"  {number + 1} recordings, {len(wrong)} differences")
        time.sleep(max(0.0, options.every - (time.monotonic() - began)))
    after = job.maps(), job.threads()
    print(f"  {options.rounds} recordings: attached in {attach[0]:.2f} s, then {min(attach[1:]):.2f} to"
          f" {max(attach[1:]):.2f}; ended in {min(stop):.2f} to {max(stop):.2f} s")  # fmt: skip
    (files, count), threads = before
    (first_files, first_count), first_threads = after_first
    (last_files, last_count), last_threads = after
    print(f"  mappings {count}, {first_count} after one, {last_count} after all; new files"
          f" {sorted(first_files - files)}")  # fmt: skip
    print(f"  threads {threads.total()}; new after one {dict(first_threads - threads)},"
          f" after all {dict(last_threads - threads)}")  # fmt: skip
    if last_files != first_files or (last_threads - first_threads).total() > CUPTI_THREADS:
        wrong += tell([f"left in the job: {sorted(last_files ^ first_files)}, {last_threads - first_threads}"])
    return wrong, round_counts[0]


def many_steps(options, job, round_counts):
    recording = Recording(options.build, options.folder, job, "steps", options=("--max-trace-size", "4G"))
    job.tell(f"steps {options.steps}")
    recording.stop()
    trace = check_chrome_trace.load(recording.folder / "trace.json.gz")
    times = options.steps // STEPS_OF_A_ROUND
    # The wait at the end of a round is made once.
    wanted = Counter({key: n * times for key, n in round_counts.items()})
    wrong, told = unassigned(trace)
    print(f"  {options.steps} steps: {told}")
    return differences(f"{options.steps} steps", counts(trace), wanted) + wrong


def profiler_after(options, job, _):
    job.work(options.folder / "theirs.json")
    theirs = check_chrome_trace.load(options.folder / "theirs.json")
    ours = check_chrome_trace.load(options.folder / "live0" / "trace.json.gz")
    return [f"torch.profiler after: {text}" for text in compare.compare(ours, theirs)]


def profiler_during(options, job, round_counts):
    """The job must go on, and the recording must have all of the work. What torch.profiler gets is printed."""
    recording = Recording(options.build, options.folder, job, "during")
    job.work(options.folder / "during.json")
    job.work()
    recording.stop()
    theirs = counts(check_chrome_trace.load(options.folder / "during.json"))
    print(f"  torch.profiler while recorded: {kernels(theirs)} kernels of {kernels(round_counts)}")
    ours = counts(check_chrome_trace.load(recording.folder / "trace.json.gz"))
    wanted = Counter({key: 2 * n for key, n in round_counts.items()})
    return differences("with torch.profiler", ours, wanted)


def starts_work(trace):
    """How many calls started a kernel, a copy or a memset."""
    on_gpu = ("kernel", "gpu_memcpy", "gpu_memset")
    return len({e["args"]["correlation"] for e in trace["traceEvents"] if e.get("cat") in on_gpu})


def profiler_before(options, job, _):
    """The library is refused, and probes record the launches."""
    job.work(options.folder / "before.json")
    recording = Recording(options.build, options.folder, job, "late", sign=f"{TRACED}|{REFUSED}|{WITHOUT}")
    job.work()
    recording.stop()
    print(f"  attaching where torch.profiler was used: {recording.said!r}")
    trace = check_chrome_trace.load(recording.folder / "trace.json.gz")
    wanted = starts_work(check_chrome_trace.load(options.folder / "live0" / "trace.json.gz"))
    found = sum(e.get("cat") in ("cuda_runtime", "cuda_driver") and e["ph"] == "X" for e in trace["traceEvents"])
    print(f"  then recorded: {kernels(counts(trace))} kernels, {found} launches by probes of {wanted}")
    if recording.said != TRACED and found != wanted:
        return [f"where torch.profiler was used: {found} launches by probes, not {wanted}"]
    return []


def main():
    parser = arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--every", type=float, default=10.0)
    parser.add_argument("--steps", type=int, default=1000)
    options = resolved(parser)
    jobs = [Job(TRAIN) for _ in range(3)]
    for job in jobs:
        job.await_ready()
    wrong, round_counts = live(options, jobs[0])
    checks = ((many_steps, 0), (profiler_after, 0), (profiler_during, 1), (profiler_before, 2))
    for check, which in checks:
        wrong += tell(check(options, jobs[which], round_counts))
    for job in jobs:
        job.end()
    return verdict(wrong)


if __name__ == "__main__":
    sys.exit(main())
