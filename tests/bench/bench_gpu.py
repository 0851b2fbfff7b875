"""What the in-target GPU library costs a launch: the fake driver of tests/fakes, with and without it.

    bench_gpu.py [--rounds N] [--launches N]
    bench_gpu.py --storm SECONDS       50,000 launches a second, recorded: is all of it there?

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


def recorded(library, *options):
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
            session = recorder.start("record", "--pid", job.pid, "-o", out, *options)
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


def recorded_program(launches, folder):
    """As the first table's launches: a program without Python, but recorded."""
    orders = folder / "orders"
    os.mkfifo(orders)
    recorder = support.Dynprof(folder)
    out = Path(tempfile.mkdtemp(dir=folder)) / "out"
    session = recorder.start(
        "record", "--gpu", "on", "-o", out, "--",
        "sh", "-c", f"exec {gpu.TARGET} {gpu.FAKE_CUPTI} < {orders}",
        env={"CUDA_INJECTION64_PATH": str(gpu.LIBRARY), **{k: str(v) for k, v in ENVIRONMENT.items()}},
    )  # fmt: skip
    with open(orders, "w") as to_job:
        session.wait_for_err("is traced")
        to_job.write(f"bench {launches}\nexit\n")
    session.wait()
    orders.unlink()
    recorder.close()
    return float(session.out.split("bench ")[1].split()[0])


def print_recorded_program(rounds, launches, folder):
    """By the clock, since it answers on its own: the least of some runs."""
    plain = gpu.GpuTarget(library=None, cupti=None, env=ENVIRONMENT)
    bare = min(float(plain.do(f"bench {launches}")) for _ in range(rounds))
    plain.kill()
    cost = min(recorded_program(launches, folder) for _ in range(rounds))
    print(f"\nrecorded, no Python: {cost:.0f} ns a launch, bare {bare:.0f}, lowest of {rounds} runs:"
          f" {cost - bare:.0f} added, {cost / bare:.1f} times")  # fmt: skip


def print_recorded(rounds, launches, folder):
    print(f"\n{'recorded, Python job':44}{'not':>8}{'recorded':>10}{'added':>8}{'lost':>8}")
    ways = {
        "by the library": recorded(True),
        "by the library, sampled stacks": recorded(True, "--sampled-launch-stacks"),
        "by probes on libcuda": recorded(False),
    }
    for name, way in ways.items():
        for depth in (5, 50):
            rows = [way(launches, depth, folder) for _ in range(rounds)]
            without, with_, lost = (statistics.median(column) for column in zip(*rows, strict=True))
            text = f"{name}, {depth} frames"
            print(f"{text:44}{without:8.0f}{with_:10.0f}{with_ - without:8.0f}{lost:8.0f}")


def cpu_ns(pid):
    """Of all threads there are."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(path.read_text().split()[0]) for path in tasks)


def print_throughput(launches, folder):
    """From the kernel's ring into a recording, and from there into a trace: GPU records for a second of
    CPU time. A launch is three: its beginning with the stack, the finished call, the kernel."""
    job = support.spawn(
        [sys.executable, HERE.parent / "programs" / "gpu_job.py", gpu.FAKES],
        env={"CUDA_INJECTION64_PATH": str(gpu.LIBRARY), "FAKE_CUDA_NO_LOG": "1"},
    )
    recorder = support.Dynprof(folder)
    out = Path(tempfile.mkdtemp(dir=folder)) / "out"
    try:
        session = recorder.start("record", "--pid", job.pid, "-o", out)
        session.wait_for_err("is traced")
        before = cpu_ns(session.pid)
        job_cost(job, launches, 5)
        time.sleep(1)  # the last of it is on its way
        taken = cpu_ns(session.pid) - before
        session.interrupt()
        session.wait()
        seconds = {}
        for output in ("chrome", "json"):
            began = os.times()
            recorder.run("export", out, "-f", output, "-o", folder / f"one.{output}")
            ended = os.times()
            seconds[output] = (ended.children_user - began.children_user) + (
                ended.children_system - began.children_system
            )
        counters = json.loads((out / "compiles.json").read_text())
        lost = sum(n for name, n in counters["lost"].items() if name.startswith("gpu_"))
        found = 2 * counters["gpu"]["calls"] + counters["gpu"]["work"]
    finally:
        recorder.close()
        job.kill()
    print(f"\n{found:,} GPU records of {launches:,} launches, {lost} lost")
    print(f"ring to recording: {found / (taken / 1e9):12,.0f} a second of CPU time")
    for output, used in seconds.items():
        print(f"recording to {output:6}: {found / used:11,.0f} a second of CPU time")


def storm(seconds, folder):
    """True: every launch and kernel is there. Two threads, 25,000 launches a second each."""
    threads, per_second = 2, 50_000
    each = per_second * seconds // threads
    orders = folder / "orders"
    os.mkfifo(orders)
    recorder = support.Dynprof(folder)
    run = recorder.start(
        "record", "--gpu", "on", "-o", folder / "out", "--",
        "sh", "-c", f"exec {gpu.TARGET} {gpu.FAKE_CUPTI} < {orders}",
        env={"CUDA_INJECTION64_PATH": str(gpu.LIBRARY), "FAKE_CUDA_NO_LOG": "1"},
    )  # fmt: skip
    with open(orders, "w") as to_job:
        run.wait_for_err(r"GPU work of process \d+ is traced")
        began = time.monotonic()
        to_job.write(f"storm {threads} {each} {threads * 1_000_000 // per_second}\nsync\nexit\n")
        to_job.flush()
    done = run.wait(timeout=20 * seconds + 120)
    took = time.monotonic() - began
    ledger = json.loads((folder / "out" / "compiles.json").read_text())
    lost = {name: n for name, n in ledger["lost"].items() if name.startswith("gpu_")}
    told = ledger["gpu"]
    print(f"{threads * each:,} launches in {took:.1f} s, report included: {told['calls']:,} calls,"
          f" {told['work']:,} kernels, {told['work_without_call']} without a call; lost: {lost}")  # fmt: skip
    print(f"recording: {(folder / 'out' / 'recording.dynprof').stat().st_size:,} bytes")
    recorder.close()
    return done.rc == 0 and not lost and told["work"] == threads * each


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
    parser.add_argument("--storm", type=int, metavar="SECONDS")
    options = parser.parse_args()
    if options.storm:
        with tempfile.TemporaryDirectory() as folder:
            return 0 if storm(options.storm, Path(folder)) else 1
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
            print_recorded_program(3, 200_000, Path(folder))
            print_recorded(3, 50_000, folder)
            print_throughput(200_000, Path(folder))
    print(f"idle thread: {idle_cpu(5) * 100:.3f} % of a CPU")


if __name__ == "__main__":
    sys.exit(main())
