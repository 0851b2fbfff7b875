#!/usr/bin/env python3
"""`record --gpu on` of a job that NVIDIA's own profilers started: Nsight Systems and Nsight Compute.

    others.py --build DIR --folder DIR

The job must go on and end well, the recording must end well, and where the library is refused there must be launches
by probes. What the recording said, and how much it has, is printed.
"""

import shutil
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests" / "compat"), str(ROOT / "tests" / "gpu")]

import check_chrome_trace  # noqa: E402
from told_job import REFUSED, TRACED, WITHOUT, Job, Recording, arguments, resolved, tell, verdict  # noqa: E402

TRAIN = ROOT / "tests" / "gpu" / "train_job.py"
INSTALLED = ("/opt/nvidia/nsight-systems/*/target-linux-x64", "/opt/nvidia/nsight-compute/*/host/target-linux-x64")


def find(name):
    if found := shutil.which(name):
        return found
    paths = [path for pattern in INSTALLED for path in Path("/").glob(f"{pattern[1:]}/{name}")]
    return str(paths[0]) if paths else None


def slices_of(trace):
    kinds = Counter(e.get("cat") for e in trace["traceEvents"] if e.get("ph") == "X")
    calls = kinds["cuda_runtime"] + kinds["cuda_driver"]
    return f"{calls} calls, {kinds['kernel']} kernels", calls


def check(options, name, *words):
    program = find(name)
    if program is None:
        print(f"  {name}: not run: it is not installed")
        return []
    output = options.folder / f"{name}-output"
    job = Job(TRAIN, under=[program, *words, "-o", str(output)])
    job.await_ready()
    recording = Recording(options.build, options.folder, job, name, sign=f"{TRACED}|{REFUSED}|{WITHOUT}")
    job.work()
    recording.stop()
    job.work()
    job.end()
    told, calls = slices_of(check_chrome_trace.load(recording.folder / "trace.json.gz"))
    written = sorted(path.name for path in options.folder.glob(f"{name}-output*"))
    print(f"  {name}: {recording.said!r}; recorded {told}; it wrote {written}")
    return [] if calls else [f"{name}: no launch was recorded"]


def main():
    options = resolved(arguments(__doc__))
    wrong = check(options, "nsys", "profile", "-t", "cuda", "-s", "none", "--cpuctxsw", "none", "-f", "true")
    # It replays each of the kernels that it is asked for; the others run as they are.
    wrong += check(options, "ncu", "--clock-control", "none", "-c", "3", "-f", "--target-processes", "all")
    return verdict(tell(wrong))


if __name__ == "__main__":
    sys.exit(main())
