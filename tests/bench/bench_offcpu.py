"""What timing waits costs at tens of thousands of switches a second, beside other tools that trace them.

    bench_offcpu.py [--rounds N] [--seconds S] [--build PATH]... [--only WORD]

Programs that do little but switch (switches.c, switches.py) run bare, under `record --no-off-cpu`, under
`record`, under perf recording every switch with its stack, and under a bpftrace script that sums time off the
CPU by stack, where these are installed. --build PATH takes another dynprof-bpf into the comparison.

First, what the kernel counts by itself (kernel.bpf_stats_enabled), which other processes' noise hardly
touches: the time in the BPF programs of the tool, per run and per switch of the machine, all programs
together; and what that is of one CPU at 50,000 switches a second. Then the target's own CPU time per pass
against the bare windows around, windows taking turns.
"""

import argparse
import mmap
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPO = HERE.parent.parent
sys.path.insert(0, str(REPO / "tests"))
sys.path.insert(0, str(REPO / "tests" / "runtime"))

import samples  # noqa: E402
import support  # noqa: E402

STATS_SWITCH = Path("/proc/sys/kernel/bpf_stats_enabled")
AT = 50_000  # switches a second, of the budget
# Raw tracepoints: not every machine has tracefs.
BPFTRACE = """
rawtracepoint:sched_switch {
  if (pid == PID) { @from[tid] = nsecs; @stack[tid] = ustack; @kernel[tid] = kstack; }
  $next = ((struct task_struct *)arg2)->pid;
  if (@from[$next]) {
    @off[@stack[$next], @kernel[$next]] = sum(nsecs - @from[$next]);
    delete(@from[$next]);
  }
}
"""

# Threads that know nothing of Python, in a process of Python: others are not recorded by themselves.
CALLER = """
import ctypes, sys
words = [word.encode() for word in sys.argv[1:]]
ctypes.CDLL(sys.argv[1]).main(len(words), (ctypes.c_char_p * len(words))(*words))
"""


class Workload:
    """A program that switches, and how far it got."""

    def __init__(self, title, argv, folder):
        self.title = title
        shared = folder / "shared"
        shared.write_bytes(bytes(16))
        self.target = support.spawn([str(word).replace("FILE", str(shared)) for word in argv])
        self.target.wait_for("^ready")
        with open(shared, "r+b") as file:
            self._passes = memoryview(mmap.mmap(file.fileno(), 16)).cast("Q")
        self.pid = self.target.pid

    def _now(self):
        """(passes, CPU seconds of its threads, switches of them)"""
        cpu, switches = 0, 0
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            cpu += int((task / "schedstat").read_text().split()[0])
            for line in (task / "status").read_text().splitlines():
                if "ctxt_switches" in line:
                    switches += int(line.split()[1])
        return self._passes[0], cpu / 1e9, switches, time.monotonic()

    def measure(self, seconds):
        """(CPU seconds a pass, its switches a second)"""
        passes, cpu, switches, began = self._now()
        time.sleep(seconds)
        passes2, cpu2, switches2, ended = self._now()
        return (cpu2 - cpu) / max(1, passes2 - passes), (switches2 - switches) / (ended - began)


# ---- tools, each a start() that returns a stop() -------------------------------------------------


class Ours:
    def __init__(self, binary, *options):
        self._binary, self._options = binary, options

    def start(self, workload, folder):
        out = Path(tempfile.mkdtemp(dir=folder)) / "out"
        argv = [self._binary, "record", "-F", 99, "-o", out, "-p", workload.pid]
        run = support.Running([*argv, *self._options], folder)
        run.wait_for_err(r"(?m)^Sampling ")
        time.sleep(0.3)

        def stop():
            run.interrupt()
            done = run.wait()
            assert done.rc == 0, done
            return out

        stop.pid = run.pid
        return stop


class Tool:
    def __init__(self, *argv):
        self._argv = argv

    def start(self, workload, folder):
        argv = [str(word).replace("PID", str(workload.pid)) for word in self._argv]
        run = support.Running(argv, folder)
        time.sleep(1.5)
        if run.process.poll() is not None:
            return None

        def stop():
            run.interrupt()
            run.wait()

        stop.pid = run.pid
        return stop


def tools(folder, builds):
    found = {"record --no-off-cpu": Ours(support.BINARY, "--no-off-cpu"), "record": Ours(support.BINARY)}
    for build in builds:
        found[f"record, {build}"] = Ours(build)
    data = folder / "perf.data"
    perf = ["perf", "record", "-q", "-e", "context-switches", "-c", "1", "-g", "-o", data, "-p", "PID"]
    for name, argv in {
        "perf record -g -e context-switches -c 1": perf,
        "bpftrace, off-CPU sums by stack": ["bpftrace", "-q", "-e", BPFTRACE],
    }.items():
        if shutil.which(argv[0]):
            found[name] = Tool(*argv)
        else:
            print(f"not installed: {argv[0]}")
    return found


# ---- the measures --------------------------------------------------------------------------------


def programs(pid):
    """{id: (name, ns, runs)} of the tracepoint programs that a process holds."""
    held = support.bpf_programs_of(pid)
    return {
        row["id"]: (row.get("name") or row["type"], row.get("run_time_ns", 0), row.get("run_cnt", 0))
        for row in support.bpf_programs()
        if row["id"] in held
        and row["type"] in ("raw_tracepoint", "tracepoint")
        and not row.get("name", "").startswith("process_")
    }


def machine_switches():
    for line in Path("/proc/stat").read_text().splitlines():
        if line.startswith("ctxt "):
            return int(line.split()[1])


def counted(tool, workload, folder, seconds):
    """What the kernel counts of the tool's programs: rows (program, ns a run, runs), ns a switch of the
    machine, and what stop() gave."""
    stop = tool.start(workload, folder)
    if not stop:
        return None
    was = STATS_SWITCH.read_text()
    STATS_SWITCH.write_text("1\n")
    try:
        before, switches = programs(stop.pid), machine_switches()
        _, rate = workload.measure(seconds)
        after, switches = programs(stop.pid), machine_switches() - switches
    finally:
        STATS_SWITCH.write_text(was)
    rows, spent = [], 0
    for number, (name, ns, runs) in after.items():
        _, ns0, runs0 = before.get(number, (name, 0, 0))
        if runs > runs0:
            rows.append((name, (ns - ns0) / (runs - runs0), runs - runs0))
            spent += ns - ns0
    return rows, spent / max(1, switches), rate, stop()


def shares(out):
    """(of the waiting time has a stack, waits, rows, bytes, lost)"""
    dump = samples.Dump(out / "recording.dynprof")
    waits = [wait for wait in dump.waits if wait.kind not in ("none", "preempted")]
    waits = [wait for wait in waits if not wait.flags & samples.WAIT_AT_ATTACH]
    total = sum(wait.length_ns for wait in waits)
    stacked = sum(wait.length_ns for wait in waits if wait.stack)
    stacks = len({wait.stack for wait in waits})
    lost = {name: n for name, n in dump.trailer["counters"].items() if name.startswith("wait_") and n}
    size = (out / "recording.dynprof").stat().st_size
    return stacked / max(1, total), sum(wait.count for wait in waits), stacks, size, lost


def print_counted(workload, found, folder, seconds):
    print("| tool | switches/s | ns a switch | at 50,000/s, of one CPU | programs |\n|---|---|---|---|---|")
    more = []
    for name, tool in found.items():
        told = counted(tool, workload, folder, seconds)
        if not told:
            print(f"| {name} | does not run on this machine | | | |", flush=True)
            continue
        rows, per_switch, rate, out = told
        parts = ", ".join(f"{program} {ns:.0f} ns x {runs:,}" for program, ns, runs in rows)
        share = f"{100 * per_switch * AT / 1e9:.2f} %" if rows else "no BPF"
        print(f"| {name} | {rate:,.0f} | {per_switch:.0f} | {share} | {parts} |", flush=True)
        if out and any(program == "thread_switched" for program, _, _ in rows):
            with_stack, waits, stacks, size, lost = shares(out)
            more.append(f"{name}: {100 * with_stack:.2f} % of the waiting time has a stack; {waits:,} "
                        f"waits, {stacks} stacks; recording {size:,} bytes; lost {lost}")
    print("\n" + "\n".join(more))


def print_slowdowns(workload, found, folder, rounds, seconds):
    ratios = {"bare (the noise)": [], **{name: [] for name in found}}
    rates = []
    for _ in range(rounds):
        before, rate = workload.measure(seconds)
        for name, values in ratios.items():
            stop = found[name].start(workload, folder) if name in found else None
            if name in found and not stop:
                continue
            during, _ = workload.measure(seconds)
            if stop:
                stop()
            after, rate = workload.measure(seconds)
            rates.append(rate)
            values.append(during / ((before + after) / 2) - 1)
            before = after
    print(f"\n{rounds} rounds of {seconds:g} s; bare {statistics.median(rates):,.0f} switches/s")
    print("| tool | CPU time a pass: median (quartiles) |\n|---|---|")
    for name, values in ratios.items():
        if not values:
            continue
        low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
        print(f"| {name} | {100 * middle:+.1f} % ({100 * low:+.1f} .. {100 * high:+.1f}) |", flush=True)


def workloads(folder):
    library = folder / "switches.so"
    build = ["cc", "-O2", "-shared", "-fPIC", "-pthread", "-o", library, HERE / "switches.c"]
    subprocess.run(build, check=True)
    program = [sys.executable, "-c", CALLER, library]
    python = [sys.executable, HERE / "switches.py"]
    return {
        "pipe: two C threads on one CPU, 10 us of work a pass": [*program, "pipe", "FILE", 10],
        "pipe, no work: as fast as they can": [*program, "pipe", "FILE", 0],
        "futex: 32 C threads, 4 tokens, 10 us of work a pass": [*program, "futex", "FILE", 10],
        "lock: two Python threads, each waits for the other": [*python, "lock", "FILE"],
        "queue: two Python threads and two queue.Queue": [*python, "queue", "FILE"],
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5, help="0: only what the kernel counts")
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--build", action="append", type=Path, default=[])
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("error: needs root\nhint: sudo make bench")
    folder = Path(tempfile.mkdtemp(prefix="bench-offcpu-"))
    try:
        found = tools(folder, options.build)
        for title, argv in workloads(folder).items():
            if options.only not in title:
                continue
            print(f"\n## {title}\n", flush=True)
            workload = Workload(title, argv, folder)
            try:
                print_counted(workload, found, folder, options.seconds)
                if options.rounds > 1:
                    print_slowdowns(workload, found, folder, options.rounds, options.seconds)
            finally:
                workload.target.kill()
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
