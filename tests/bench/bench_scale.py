"""How the cost of a recording grows with what is recorded.

    bench_scale.py [--only WORD ...] [--seconds S]

    samples    processes that keep all CPUs busy, at growing rates: as many samples as more CPUs would give
    threads    threads of one process; together they work as often, whatever their number
    processes  the same with processes, and `record --all`
    switches   switches between threads, a second
    history    a process that compiles all the time, for longer and longer

A row: until it samples; our CPU time then, per second; what the end took; peak memory; bytes; lost things. The last
column compares with the row above: "x2" where there is twice as much of what the table is about, "own CPU x2" where our
own CPU time is twice as much.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import support  # noqa: E402
from bench_offcpu import CALLER  # noqa: E402
from own_cost import cpu_seconds, wait_for_end  # noqa: E402


class Row(NamedTuple):
    amount: float  # of what the table is about
    name: str
    attach_s: float  # by the clock
    attach_cpu_s: float
    during_s: float
    during_cpu_s: float
    end_s: float
    end_cpu_s: float
    peak_mb: float
    size: int  # bytes of the recording
    samples: int
    lost: dict


def recorded(amount, name, options, work):
    """A Row of `record` with these options, while `work` goes on."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        began = time.monotonic()
        run = support.Running([support.BINARY, "record", "-o", out, *options], folder)
        try:
            run.wait_for_err(r"(?m)^Sampling ", timeout=120)
            attached, attach_cpu = time.monotonic(), cpu_seconds(run.pid)
            work()
            worked, worked_cpu = time.monotonic(), cpu_seconds(run.pid)
            run.interrupt()
            ended = wait_for_end(run)
        finally:
            run.kill()
        ledger = json.loads((out / "compiles.json").read_text())
        size = (out / "recording.dynprof").stat().st_size
        lost = {key: value for key, value in ledger["lost"].items() if value}
        return Row(
            amount, name, attached - began, attach_cpu, worked - attached, worked_cpu - attach_cpu, ended.took_s,
            ended.cpu_s - worked_cpu, ended.peak_mb, size, ledger["samples"], lost,
        )  # fmt: skip


def show(title, rows):
    print(f"\n{title}")
    print(f"  {'':<26} {'attach':>8} {'CPU':>7} {'own CPU':>8} {'end':>7} {'CPU':>7} {'peak':>7} {'bytes/s':>10} "
          f"{'samples/s':>10}  growth", flush=True)  # fmt: skip
    before = None
    for row in rows:
        cpu = row.during_cpu_s / row.during_s
        growth = ""
        if before:
            growth = f"x{row.amount / before.amount:.1f}: "
            growth += f"own CPU x{cpu / (before.during_cpu_s / before.during_s):.1f}, " if before.during_cpu_s else ""
            growth += f"end x{row.end_cpu_s / before.end_cpu_s:.1f}, memory x{row.peak_mb / before.peak_mb:.1f}"
        print(
            f"  {row.name:<26} {row.attach_s:6.2f} s {row.attach_cpu_s:5.2f} s {100 * cpu:6.1f} % {row.end_s:5.2f} s "
            f"{row.end_cpu_s:5.2f} s {row.peak_mb:4.0f} MB {row.size / row.during_s:10,.0f} "
            f"{row.samples / row.during_s:10,.0f}  {growth}"
        )
        if row.lost:
            print(f"  {'':<26} lost: {row.lost}")
        before = row
        sys.stdout.flush()


def job(mode, number):
    return support.spawn([support.venv_python().path, HERE / "scaled_job.py", mode, number], timeout=300)


def ready_pids(target):
    return target.wait_for(r"^ready (.*)")[1].split()


def samples(seconds):
    target = job("busy", os.cpu_count())
    try:
        pids = ",".join(ready_pids(target))
        for rate in (99, 999, 4999, 9999):
            yield recorded(rate, f"{rate:,} Hz, {os.cpu_count()} CPUs", ["-F", rate, "-p", pids],
                           lambda: time.sleep(seconds))  # fmt: skip
    finally:
        target.kill()


def sizes(mode, numbers, options, seconds):
    for number in numbers:
        target = job(mode, number)
        try:
            yield recorded(number, f"{number:,} {mode}", ["-F", 99, *options(target)], lambda: time.sleep(seconds))
        finally:
            target.kill()


def threads(seconds):
    return sizes("threads", (1250, 2500, 5000, 10_000), lambda target: ["-p", target.pid], seconds)


def processes(seconds):
    return sizes("processes", (625, 1250, 2500, 5000), lambda target: ["--all"], seconds)


def switches(seconds):
    with tempfile.TemporaryDirectory() as folder:
        shared = Path(folder) / "shared"
        library = Path(folder) / "switches.so"
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-pthread", "-o", library, HERE / "switches.c"], check=True)
        for work_us in (40, 10, 0):
            shared.write_bytes(bytes(16))
            target = support.spawn([sys.executable, "-c", CALLER, library, "pipe", shared, work_us])
            try:
                counted = []

                def wait(pid=target.pid, counted=counted):
                    counted.append(switches_of(pid))
                    time.sleep(seconds)
                    counted.append(switches_of(pid))

                row = recorded(1, "", ["-F", 99, "-p", target.pid], wait)
                rate = (counted[1] - counted[0]) / seconds
                yield row._replace(amount=rate, name=f"{rate:,.0f} switches/s")
            finally:
                target.kill()


def switches_of(pid):
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        total += sum(int(n) for n in re.findall(r"ctxt_switches:\s*(\d+)", (task / "status").read_text()))
    return total


def history(seconds):
    for factor in (1, 2, 4, 8):
        compiles = factor * seconds
        target = support.spawn([support.venv_python().path, HERE / "recompiling.py"], timeout=120)

        def compile_on(target=target, compiles=compiles):
            target.send(f"compile {compiles}")
            target.wait_for(r"^cpu 1 ", timeout=60 + 10 * compiles)

        try:
            yield recorded(compiles, f"{compiles:,} compiles", ["-F", 99, "-p", target.pid], compile_on)
        finally:
            target.kill()


TABLES = {
    "samples": (samples, "Samples a second"),
    "threads": (threads, "Threads of one process, 1,000 short works a second together"),
    "processes": (processes, "Processes with --all, 1,000 short works a second together"),
    "switches": (switches, "Switches a second between two threads on one CPU"),
    "history": (history, "Compiles one after the other, backend aot_eager"),
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", action="append", choices=tuple(TABLES))
    parser.add_argument("--seconds", type=int, default=15)
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("error: needs root\nhint: sudo make bench")
    for word in options.only or TABLES:
        table, title = TABLES[word]
        show(title, table(options.seconds))


if __name__ == "__main__":
    main()
