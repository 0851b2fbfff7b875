"""What the in-target GPU library costs a launch: the fake driver of tests/fakes, with and without it.

    bench_gpu.py [--rounds N] [--launches N]

Each round runs every configuration once, in a random order, in a process of its own; the table shows
medians over the rounds. The fake launch is one cudaLaunchKernel that ends in one cuLaunchKernel. The fake
CUPTI costs something too: "CUPTI, empty client" is a client whose callbacks do nothing, and the
library's own cost is what it adds to that.
"""

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "runtime")]

import gpu_library as gpu  # noqa: E402
import support  # noqa: E402

ENVIRONMENT = {"FAKE_CUDA_NO_LOG": 1, "FAKE_GPU_KERNEL_NS": 50}


def measure(target, launches):
    """CPU nanoseconds of the launching thread per launch: waiting for a busy CPU does not count."""
    schedstat = Path(f"/proc/{target.pid}/task/{target.pid}/schedstat")
    target.do(f"bench {launches // 10}")
    before = int(schedstat.read_text().split()[0])
    target.do(f"bench {launches}")
    return (int(schedstat.read_text().split()[0]) - before) / launches


def bare(launches):
    target = gpu.GpuTarget(library=None, cupti=None, env=ENVIRONMENT)
    return target, measure(target, launches)


def idle(launches):
    target = gpu.GpuTarget(env=ENVIRONMENT)
    return target, measure(target, launches)


def empty_client(launches):
    target = gpu.GpuTarget(library=None, env=ENVIRONMENT)
    target.do("empty")
    return target, measure(target, launches)


def switched_on(launches):
    target = gpu.GpuTarget(env=ENVIRONMENT)
    target.attach()
    return target, measure(target, launches)


def with_uprobes(launches):
    """The kernel's price for a hit, without a BPF program."""
    target = gpu.GpuTarget(env=ENVIRONMENT)
    own = target.inside.thread()
    target.probes = [gpu.Uprobe(name, own) for name in ("gpu_status", "gpu_name", "gpu_batch")]
    target.probes.append(gpu.Uprobe("gpu_launch", target.pid))
    target.inside.await_status(gpu.ON)
    return target, measure(target, launches)


def recorded(library):
    """By dynprof-bpf, from a Python job: `depth` Python frames lie under each launch."""

    def run(launches, depth, folder):
        environment = {"CUDA_INJECTION64_PATH": str(gpu.LIBRARY) if library else "none"}
        job = support.spawn(
            [sys.executable, HERE.parent / "programs" / "gpu_job.py", gpu.FAKES],
            env={**environment, **{k: str(v) for k, v in ENVIRONMENT.items()}},
        )
        recorder = support.Dynprof(folder)
        out = Path(tempfile.mkdtemp(dir=folder)) / "out"
        try:
            costs = [job_cost(job, launches, depth)]
            session = recorder.start("record", "--pid", job.pid, "--no-svg", "-o", out)
            session.wait_for_err("is traced" if library else "uses CUDA without")
            costs.append(job_cost(job, launches, depth))
            session.interrupt()
            session.wait()
            lost = json.loads((out / "compiles.json").read_text())["lost"]
            costs.append(sum(n for name, n in lost.items() if name.startswith("gpu_")))
        finally:
            recorder.close()
            job.kill()
        return costs

    return run


def job_cost(job, launches, depth):
    """CPU nanoseconds of the launching thread for a launch."""
    schedstat = Path(f"/proc/{job.pid}/task/{job.pid}/schedstat")
    before = int(schedstat.read_text().split()[0])
    job.told = getattr(job, "told", 0) + 1
    job.send(f"deep {depth} {launches}")
    job.wait_for(rf"^did {job.told} ", 120)
    return (int(schedstat.read_text().split()[0]) - before) / launches


def print_recorded(rounds, launches, folder):
    print(f"\n{'recorded, Python job':34}{'not':>8}{'recorded':>10}{'added':>8}{'lost':>8}")
    for name, library in (("by the library", True), ("by probes on libcuda", False)):
        for depth in (5, 50):
            rows = [recorded(library)(launches, depth, folder) for _ in range(rounds)]
            without, with_, lost = (statistics.median(column) for column in zip(*rows))
            text = f"{name}, {depth} frames"
            print(f"{text:34}{without:8.0f}{with_:10.0f}{with_ - without:8.0f}{lost:8.0f}")


CONFIGURATIONS = {
    "bare fake launch": bare,
    "library idle": idle,
    "CUPTI, empty client": empty_client,
    "library on": switched_on,
    "library on, uprobes set": with_uprobes,
}


def idle_cpu(seconds):
    """CPU seconds per second of the idle library's thread."""
    target = gpu.GpuTarget(env=ENVIRONMENT)
    path = Path(f"/proc/{target.pid}/task/{target.inside.thread()}/schedstat")
    before, began = int(path.read_text().split()[0]), time.monotonic()
    time.sleep(seconds)
    used = int(path.read_text().split()[0]) - before
    share = used / 1e9 / (time.monotonic() - began)
    target.kill()
    return share


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--launches", type=int, default=300_000)
    options = parser.parse_args()
    times = {name: [] for name in CONFIGURATIONS}
    lost = {name: 0 for name in CONFIGURATIONS}
    chance = random.Random(1)
    for _ in range(options.rounds):
        for name, run in chance.sample(list(CONFIGURATIONS.items()), len(CONFIGURATIONS)):
            if run is with_uprobes and (os.geteuid() != 0 or not gpu.Uprobe.PMU.exists()):
                continue
            target, nanoseconds = run(options.launches)
            times[name].append(nanoseconds)
            if target.inside:
                lost[name] += target.inside.status().dropped_ring
            target.kill()
            for probe in getattr(target, "probes", ()):
                probe.close()
    base = statistics.median(times["bare fake launch"])
    print(f"{'':26}{'ns/launch':>10}{'added':>8}{'ratio':>8}{'lowest':>9}{'lost':>8}")
    for name, values in times.items():
        if not values:
            print(f"{name:26}{'not possible here':>20}")
            continue
        median = statistics.median(values)
        print(
            f"{name:26}{median:10.0f}{median - base:8.0f}{median / base:8.2f}"
            f"{min(values):9.0f}{lost[name]:8}"
        )
    if os.geteuid() == 0:
        with tempfile.TemporaryDirectory() as folder:
            print_recorded(3, 50_000, folder)
    print(f"idle thread: {idle_cpu(5) * 100:.3f} % of a CPU")


if __name__ == "__main__":
    main()
