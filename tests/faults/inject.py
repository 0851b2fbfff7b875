"""Faults at random moments: a signal to the profiler or to its target, while it attaches, records, detaches or
writes its outputs. Afterwards the target must be as without a profiler, nothing of ours left, the recording readable,
and the exit status right."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

from pool import GOOD
from results import Row

PAUSE_S = 0.7  # between SIGSTOP and SIGCONT
LIMIT_S = 90
# Below this a recording may have been cut before its first data was on disk.
FIRST_DATA_BYTES = 8192
INTERRUPTS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
KINDS = {
    f"{who} {number.name}": (who, number)
    for who, numbers in {
        "profiler": ("SIGKILL", "SIGSTOP", "SIGSEGV", "SIGINT", "SIGTERM", "SIGHUP"),
        "target": ("SIGKILL", "SIGSTOP", "SIGSEGV"),
    }.items()
    for number in (signal.Signals[name] for name in numbers)
}
VERBS = ("record", "record", "dump", "record", "compiles")


def share(name, times):
    """How many of `times` faults are of this kind; all kinds together are at least that many."""
    return -(-times // len(KINDS))


def arguments_of(verb, pid, out):
    if verb == "record":
        return ("record", "-p", pid, "-F", "499", "-d", "700ms", "-o", out)
    return (verb, "-p", pid)


class Injector:
    """Faults of one kind, in a lab whose targets other kinds use too."""

    def __init__(self, lab, folder, row, who, number):
        self.lab, self.row, self.who, self.number = lab, row, who, number
        self.folder = Path(folder)
        self.folder.mkdir(parents=True)
        self.statuses = Counter()
        self.target, self.snapshot = None, None

    def start(self, verb, out):
        return self.lab.start(*arguments_of(verb, self.target.pid, out))

    def new_target(self):
        self.target, self.snapshot = self.lab.standing_target()
        self.target.tell("go")

    def clean_seconds(self, verb):
        """How long it takes when nothing goes wrong."""
        if verb not in self.lab.seconds:
            done = self.start(verb, self.folder / f"clean-{verb}").wait(LIMIT_S)
            assert done.rc == 0, f"{verb} fails without a fault: {done}"
            self.lab.seconds[verb] = done.seconds
        return self.lab.seconds[verb]

    def inject(self, number, chance):
        verb = VERBS[number % len(VERBS)]
        if self.target is None:
            self.new_target()
        moment = chance.uniform(0, 1.05 * self.clean_seconds(verb))
        what = f"{verb}, {self.number.name} to the {self.who} after {moment:.3f} s"
        out = self.folder / f"out-{number}"
        running = self.start(verb, out)
        victim = running.pid if self.who == "profiler" else self.target.pid
        self.strike(victim, moment, running)
        try:
            done = running.wait(LIMIT_S)
        except AssertionError as problem:
            self.row.fail(f"{what}: it hangs\n{problem}")
            return
        self.statuses[done.rc] += 1
        self.check_status(what, done)
        self.check_recording(what, out, done)
        self.check_target(what)

    def strike(self, victim, moment, running):
        deadline = time.monotonic() + moment
        while time.monotonic() < deadline and (
            self.who == "target" or running.process.poll() is None
        ):
            time.sleep(min(0.002, max(0, deadline - time.monotonic())))
        if self.who == "profiler" and running.process.poll() is not None:
            return
        os.kill(victim, self.number)
        if self.number == signal.SIGSTOP:
            time.sleep(PAUSE_S)
            os.kill(victim, signal.SIGCONT)

    def check_status(self, what, done):
        allowed = {0}
        if self.who == "target":
            allowed = {0} if self.number == signal.SIGSTOP else {0, 1}
        elif self.number in INTERRUPTS:
            # Control-C ends a recording as it should; another verb, or an attach, may just end.
            allowed = {0, 128 + self.number, -self.number}
            if (
                "\nCaptured " in done.err
                or "\nSampling" in done.err
                or done.err.startswith("Sampling")
            ):
                allowed = {0}
            # After the recording, a signal ends the making of outputs.
            if "\nstopped at once; " in done.err:
                allowed = {128 + self.number}
        elif self.number != signal.SIGSTOP:
            allowed = {0, -self.number}
        if done.rc not in allowed:
            self.row.fail(f"{what}: status {done.rc}, not one of {sorted(allowed)}\n{done}")
        if done.rc == 1 and not ("error: " in done.err and "hint: " in done.err):
            self.row.fail(f"{what}: no reason given\n{done}")

    def check_recording(self, what, out, done):
        recording = out / "recording.dynprof"
        if done.rc == 0 and done.args[1] == "record" and not (out / "report.txt").exists():
            self.row.fail(f"{what}: no report.txt\n{done}")
        if not recording.exists():
            return
        try:
            read = self.lab.run("report", out, timeout=LIMIT_S)
        except AssertionError as problem:
            self.row.fail(f"{what}: report hangs\n{problem}")
            return
        short = recording.stat().st_size < FIRST_DATA_BYTES
        if read.rc != 0 and not (short and read.rc == 1 and "error: " in read.err):
            self.row.fail(
                f"{what}: the recording of {recording.stat().st_size} bytes cannot be read\n{read}"
            )

    def check_target(self, what):
        """The target goes on as if nothing had been, or has ended as it was made to, and nothing is left."""
        died = self.who == "target" and self.number != signal.SIGSTOP
        target, self.target = self.target, None
        if died:
            outcome = target.ended(20)
            if outcome.status != -self.number or outcome.out != "ready\n":
                self.row.harm(f"{what}: {outcome}\n{target.err[-2000:]}")
            found = self.lab.left.found()
        else:
            try:
                target.quiet()
                found = self.lab.left.found(self.snapshot)
                target.tell("go")
                self.target = target
            except AssertionError as problem:
                self.row.harm(f"{what}: {problem}")
                found = self.lab.left.found()
        for thing in found:
            self.row.fail(f"{what}: left behind: {thing}")

    def close(self):
        if self.target:
            outcome = self.target.end()
            if outcome != GOOD:
                self.row.harm(f"in the end: {outcome}\n{self.target.err[-2000:]}")


def run(name, times, lab, seed=None):
    """`times` faults of one kind."""
    who, number = KINDS[name]
    seed = seed if seed is not None else int.from_bytes(os.urandom(4), "little")
    row = Row(f"inject: {name}", times)
    began = time.monotonic()
    injector = Injector(lab, lab.folder / name.replace(" ", "-"), row, who, number)
    try:
        chance = random.Random(f"{seed} {name}")
        for count in range(times):
            injector.inject(count, chance)
    finally:
        injector.close()
    row.seconds = time.monotonic() - began
    statuses = ", ".join(f"{rc}: {n}" for rc, n in sorted(injector.statuses.items()))
    row.note = f"seed {seed}; status {statuses}"
    return row
