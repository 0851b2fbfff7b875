"""Awkward targets (tests/faults/cases): each runs bare, and under `record` with everything on. Some also run under a
plain `record`, which removes probes. What a target prints and how it ends must be the same."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import support
from job import FAULTS, Job, python
from leftovers import Leftovers
from results import Row

HERTZ = "999"
# What costs the target time and is done only where it is asked for: probes of ranges, and probes of runs that stay set
# however often they are hit.
EVERYTHING = ("--record-functions", "--count-all-runs")
DEFAULTS = ()  # probes that are hit too often are removed, while they are hit
EXCEPTIONS = (
    "backward_raises backward_raises_on_threads compiled_region_raises compile_raises clock_calls"
)
STACKS = "greenlets_in_backward contexts_in_backward longjmp_in_backward threads_end_by_force"
SIGNALS = "signals_raise_in_backward signals_on_another_stack"
PROCESSES = "forks_in_backward forks_in_compile spawns_in_backward_and_compile"
TOOLS = "profilers_inside"
FILTER = "seccomp_as_docker"  # to its process' end
# Also under a recording that removes the probes of runs, which takes 10,000 hits.
REMOVED = "backward_raises greenlets_in_backward"
ISSUE_ROUNDS = 10_000
# In the environment of every dynprof-bpf started here.
MARKER = f"DYNPROF_AWKWARD_{os.getpid()}"
MARKED = {MARKER: "1"}


@dataclass(frozen=True)
class Target:
    name: str
    cases: str  # separated by blanks, run one after the other in one process
    rounds: int
    beside: object = None  # called with (pid, ended, folder) while the target works
    recorded: bool = True
    options: tuple = EVERYTHING  # of the recording


def debugger_comes_and_goes(pid, ended, folder):
    """gdb stops the target, reads its stacks, and leaves."""
    times = 0
    # Without reading the symbols of torch's libraries, which takes many seconds.
    asked = ["gdb", "-q", "-batch", "-iex", "set auto-solib-add off", "-p", str(pid)]
    asked += ["-ex", "thread apply all bt 3", "-ex", "detach"]
    while not ended.is_set():
        subprocess.run(asked, capture_output=True, timeout=120, stdin=subprocess.DEVNULL)
        times += 1
        ended.wait(0.2)
    return times


def has_ended(pid):
    """Also of a process that was not waited for yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def second_profiler_comes_and_goes(pid, ended, folder, begins=1):
    """Other dynprof-bpf attach for 0.1 s, `begins` of them at a time."""
    runner = support.Dynprof(folder)
    times = 0
    try:
        while not ended.is_set():
            runs = [
                runner.start("record", "-p", pid, "-d", "100ms", "-F", HERTZ,
                             "-o", folder / f"second-{times + n}", env=MARKED)
                for n in range(begins)
            ]  # fmt: skip
            for run in runs:
                done = run.wait(180)
                assert done.rc == 0 or done.rc == 1 and has_ended(pid), done
                shutil.rmtree(done.args[-1], ignore_errors=True)
            times += begins
    finally:
        runner.close()
    return times


def attach_and_detach(pid, ended, folder):
    """Three at a time, since one takes a second or two to write its outputs."""
    return second_profiler_comes_and_goes(pid, ended, folder, begins=3)


def short_table():
    """A few processes, each with many cases."""
    return (
        Target("exceptions", EXCEPTIONS, 100),
        Target("stacks", STACKS, 100),
        Target("signals, forks, tools, seccomp", f"{SIGNALS} {PROCESSES} {TOOLS} {FILTER}", 60),
        Target("debugger", "plain_work", 300, debugger_comes_and_goes),
        Target("attach and detach", "plain_work", 250, attach_and_detach, recorded=False),
    )


def long_table():
    """One process for each case, with the counts that docs/security.md states."""
    rounds = {
        "backward_raises": ISSUE_ROUNDS,
        "greenlets_in_backward": ISSUE_ROUNDS,
        "clock_calls": 10_000,
        "profilers_inside": 400,
    }
    names = " ".join((EXCEPTIONS, STACKS, SIGNALS, PROCESSES, TOOLS, FILTER)).split()
    each = tuple(Target(name, name, rounds.get(name, 1000)) for name in names)
    ten_minutes = 64_000  # rounds: three quarters of them 80 a second
    removed = tuple(
        Target(f"{name}, probes are removed", name, ISSUE_ROUNDS, options=DEFAULTS) for name in REMOVED.split()
    )
    return each + removed + (
        Target("debugger", "plain_work", 4000, debugger_comes_and_goes),
        Target("second profiler", "plain_work", 4000, second_profiler_comes_and_goes),
        Target("attach and detach", "plain_work", ten_minutes, attach_and_detach, recorded=False),
    )


def start(target, folder):
    job = Job(
        [python(), FAULTS / "awkward_job.py", ",".join(target.cases.split()), target.rounds], folder
    )
    job.wait_for("ready")
    return job


def run_bare(target, folder):
    job = start(target, folder)
    begin = time.monotonic()
    job.tell()
    try:
        job.process.wait(1800)
    finally:
        outcome = job.finish(0)
    assert (
        outcome.status == 3
    ), f"{target.name} does not run without a profiler: {outcome}\n{job.err}"
    return outcome, time.monotonic() - begin


class Beside:
    """Something that runs in a thread while the target works; what it raised is raised at its end."""

    def __init__(self, function, pid, folder):
        self._ended = threading.Event()
        self.times, self._problem = 0, None

        def run():
            try:
                self.times = function(pid, self._ended, folder)
            except BaseException as problem:  # handed to the thread that waits
                self._problem = problem

        self._thread = threading.Thread(target=run)
        self._thread.start()

    def end(self):
        self._ended.set()
        self._thread.join(300)
        if self._problem:
            raise self._problem


def run_recorded(target, folder, timeout):
    """(outcome, problems of the profiler, what ran beside)."""
    problems, recording = [], None
    runner = support.Dynprof(folder)
    left = Leftovers(MARKER)
    job = start(target, folder / "target")
    try:
        if target.recorded:
            recording = runner.start(
                "record", "-p", job.pid, "-F", HERTZ, *target.options, "-o", folder / "out",
                env=MARKED,
            )  # fmt: skip
            recording.wait_for_err(r"(?m)^Sampling ", timeout=120)
        beside = Beside(target.beside, job.pid, folder) if target.beside else None
        job.tell()
        outcome = job.finish(timeout)
        if beside:
            beside.end()
        if recording:
            done = recording.wait(300)
            if done.rc != 0 or not (folder / "out" / "report.txt").exists():
                problems.append(f"record: {done}")
            read = runner.run("report", folder / "out", timeout=120, env=MARKED)
            if read.rc != 0:
                problems.append(f"report: {read}")
    finally:
        runner.close()
        job.kill()
    problems += left.found()
    return outcome, problems, beside.times if beside else None


def run(target, folder, runs=1):
    """One row of the table."""
    folder = Path(folder)
    row = Row(target.name, runs)
    bare, seconds = run_bare(target, folder / "bare")
    for number in range(runs):
        place = folder / f"recorded-{number}"
        place.mkdir(parents=True)
        began = time.monotonic()
        outcome, problems, beside = run_recorded(target, place, 60 + 6 * seconds)
        row.seconds += time.monotonic() - began
        if outcome != bare:
            said = (place / "target" / "stderr").read_text(errors="replace")[-3000:]
            row.harm(f"bare: {bare}; recorded: {outcome}\n{said}")
        for problem in problems:
            row.fail(problem)
        if beside is not None:
            row.note = f"{beside} times beside it"
    return row
