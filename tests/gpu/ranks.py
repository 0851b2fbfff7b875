#!/usr/bin/env python3
"""A job of two ranks that torchrun started, on one GPU: `record --gpu on` of torchrun's process.

    ranks.py --build DIR --folder DIR

First with --gpu-ranks 1, which must load the library into that rank alone; then into all. No DataLoader's worker
may have it. The recording of all must have kernels of both ranks, each with its call and Triton's with their trace
ids, and `export --split rank` a trace for each.
"""

import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests" / "compat"), str(ROOT / "tests" / "gpu")]

import check_chrome_trace  # noqa: E402
from live import unassigned  # noqa: E402
from told_job import TRACED, Recording, arguments, resolved, tell, verdict  # noqa: E402

LIBRARY = "libdynprof_cupti"


class Ranks:
    """torchrun's process, and those below it."""

    def __init__(self, folder):
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
             ROOT / "tests" / "gpu" / "ranks_job.py", folder],
            env={**os.environ, "CUDA_INJECTION64_PATH": "none", "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        self.pid = self.process.pid

    def await_ready(self):
        deadline = time.monotonic() + 120
        while not all((self.folder / f"ready-{rank}").exists() for rank in range(2)):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.process.kill()
                raise SystemExit("the ranks never became ready")
            time.sleep(0.1)

    def with_library(self):
        """{what the process is: [whether it has the library, ...]}"""
        found = {}
        for pid in self._below(self.pid):
            task = Path(f"/proc/{pid}")
            try:
                words = (task / "cmdline").read_bytes()
                environment = (task / "environ").read_bytes().split(b"\0")
                name = (task / "comm").read_text().strip()
                maps = (task / "maps").read_text()
            except OSError:
                continue
            rank = next((word[5:].decode() for word in environment if word.startswith(b"RANK=")), None)
            what = f"rank {rank}" if name != "pt_data_worker" else "worker"
            if b"compile_worker" in words or rank is None:
                what = "other"
            found.setdefault(what, []).append(LIBRARY in maps)
        return found

    def _below(self, pid):
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in children.read_text().split():
                yield int(child)
                yield from self._below(child)

    def end(self):
        (self.folder / "stop").touch()
        if self.process.wait(60) != 0:
            raise SystemExit(f"torchrun ended with {self.process.returncode}")


def kernels_of(trace):
    """How many kernels each process launched."""
    slices = [e for e in trace["traceEvents"] if e.get("ph") == "X"]
    callers = {
        e["args"]["correlation"]: e["pid"]
        for e in slices
        if e.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in e.get("args", {})
    }
    return Counter(callers.get(e["args"]["correlation"]) for e in slices if e.get("cat") == "kernel")


def record(options, job, name, ranks, words=()):
    """One that begins with so many ranks traced, and lasts two seconds."""
    sign = f"(?s){TRACED}" + f".*{TRACED}" * (ranks - 1)
    recording = Recording(options.build, options.folder, job, name, sign=sign, options=words)
    time.sleep(2)
    recording.stop()
    return recording


def main():
    options = resolved(arguments(__doc__))
    wrong = []
    job = Ranks(options.folder)
    try:
        job.await_ready()
        record(options, job, "one", 1, ("--gpu-ranks", "1"))
        found = job.with_library()
        print(f"  with --gpu-ranks 1: {found}")
        if any(found["rank 0"]) or not any(found["rank 1"]) or any(found.get("worker", [True])):
            wrong.append(f"--gpu-ranks 1: the library is in {found}")
        all_ranks = record(options, job, "all", 2)
        found = job.with_library()
        print(f"  then without: {found}")
        if not any(found["rank 0"]) or not any(found["rank 1"]) or any(found.get("worker", [True])):
            wrong.append(f"all ranks: the library is in {found}")
    finally:
        job.end()
    trace = check_chrome_trace.load(all_ranks.folder / "trace.json.gz")
    texts, told = unassigned(trace)
    wrong += texts
    kernels = kernels_of(trace)
    print(f"  {told}; by process {dict(kernels)}")
    if len(kernels) != 2:
        wrong.append(f"kernels of {len(kernels)} processes, not of 2")
    split = options.folder / "split"
    subprocess.run([options.build / "dynprof-bpf", "export", all_ranks.folder, "-f", "chrome", "--split", "rank",
                    "-o", split], check=True)  # fmt: skip
    files = {path.name: kernels_of(check_chrome_trace.load(path)).total() for path in sorted(split.iterdir())}
    print(f"  kernels in each file of --split rank: {files}")
    if len(files) != 2 or sorted(files.values()) != sorted(kernels.values()):
        wrong.append(f"--split rank: {files}")
    return verdict(tell(wrong))


if __name__ == "__main__":
    sys.exit(main())
