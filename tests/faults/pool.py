"""Targets in little time: forks of a process that has imported torch (inject_job.py)."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import support
from job import FAULTS, Job, Outcome, python
from leftovers import Leftovers, Snapshot

GOOD = Outcome(
    "ready\ndone 0 wrong\n", 3
)  # what every target says and how it ends, without a profiler


def wait_until(condition, what, timeout=30):
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {timeout} s: {what}"
        time.sleep(0.005)
    return value


class PoolTarget:
    def __init__(self, folder):
        self.folder = Path(folder)
        self._quiet = 0
        text = wait_until(lambda: self._read("pid"), "a target of the pool")
        self.pid = int(text)
        wait_until(lambda: "ready" in self._read("stdout"), "the target is ready")

    def _read(self, name):
        try:
            return (self.folder / name).read_text(errors="replace")
        except FileNotFoundError:
            return ""

    @property
    def err(self):
        return self._read("stderr")

    @property
    def status(self):
        text = self._read("status")
        return int(text) if text else None

    def tell(self, line="go"):
        fd = os.open(self.folder / "in", os.O_RDWR | os.O_NONBLOCK)
        os.write(fd, line.encode() + b"\n")
        os.close(fd)

    def signal(self, number):
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            pass

    def quiet(self):
        """Makes it stand still, until tell()."""
        self._quiet += 1
        self.tell(f"quiet {self._quiet}")
        done = self.folder / f"quiet-{self._quiet}"
        wait_until(lambda: done.exists() or self.status is not None, "the target stands still", 60)
        assert self.status is None, f"the target ended: {self.outcome()}\n{self.err}"
        done.unlink()

    def outcome(self):
        return Outcome(self._read("stdout"), self.status)

    def end(self, timeout=60):
        """Tells it to end; how it did."""
        if self.status is None:
            self.tell("end")
        return self.ended(timeout)

    def ended(self, timeout=60):
        deadline = time.monotonic() + timeout
        while self.status is None and time.monotonic() < deadline:
            time.sleep(0.01)
        outcome = self.outcome()
        self.kill()
        return outcome

    def kill(self):
        if self.status is None:
            self.signal(signal.SIGKILL)
            wait_until(lambda: self.status is not None, "the target is gone")


class Pool:
    def __init__(self, folder):
        self._folder = Path(folder)
        self._count = 0
        self._targets = []
        self._server = Job([python(), FAULTS / "inject_job.py"], self._folder / "server")
        self._server.wait_for("ready")

    def target(self):
        self._count += 1
        folder = self._folder / f"target-{self._count}"
        folder.mkdir(parents=True)
        folder.chmod(0o777)  # a target may have become another user
        os.mkfifo(folder / "in", 0o666)
        self._server.tell(f"spawn {folder}")
        target = PoolTarget(folder)
        self._targets.append(target)
        return target

    def close(self):
        for target in self._targets:
            target.kill()
        self._server.kill()


class Lab:
    """A pool of targets, and dynprof-bpf started so that what it leaves behind is found."""

    def __init__(self, folder, binary=support.BINARY):
        self.folder = Path(folder)
        self.temporary = self.folder / "tmp"
        self.temporary.mkdir(parents=True)
        self.pool = Pool(self.folder / "pool")
        self.marker = f"DYNPROF_FAULTS_{os.getpid()}_{id(self)}"
        self.env = {self.marker: "1", "TMPDIR": str(self.temporary)}
        self.left = Leftovers(self.marker, self.temporary)
        self.binary = binary
        self.seconds = {}  # how long each verb takes when nothing goes wrong
        self._runner = support.Dynprof(self.folder, binary)

    def start(self, *arguments, env=None, **options):
        return self._runner.start(*arguments, env={**self.env, **(env or {})}, **options)

    def run(self, *arguments, timeout=120, **options):
        return self.start(*arguments, **options).wait(timeout)

    def standing_target(self):
        """(target that compiled once and stands still, how it was then)."""
        target = self.pool.target()
        target.tell("go")
        time.sleep(0.5)
        target.quiet()
        return target, Snapshot(target.pid)

    def close(self):
        self._runner.close()
        self.pool.close()
