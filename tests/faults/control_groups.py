"""Control groups that a fault freezes, or kills with all that is in them."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path


class Skip(Exception):
    """This machine does not offer what the fault needs."""


def mounts_of(kind):
    lines = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    return [(Path(words[1]), words[3].split(",")) for words in lines if words[2] == kind]


class Group:
    """A new group: the first of `places`, (root, file), that can be made and has that file."""

    def __init__(self, places, purpose):
        for self.root, file in places:
            self.path = self.root / f"dynprof-faults-{os.getpid()}"
            try:
                self.path.mkdir()
            except OSError:
                continue
            self.file = self.path / file
            if self.file.exists():
                return
            self.path.rmdir()
        raise Skip(f"no control group can be {purpose} here")

    def add(self, pid):
        (self.path / "cgroup.procs").write_text(str(pid))

    def pids(self):
        return (self.path / "cgroup.procs").read_text().split()

    def remove(self):
        for pid in self.pids():
            (self.root / "cgroup.procs").write_text(pid)
        self.path.rmdir()


class Frozen(Group):
    """A control group that is frozen, of version 2 or 1."""

    def __init__(self, pid):
        places = [(root, "cgroup.freeze") for root, _ in mounts_of("cgroup2")]
        places += [(root, "freezer.state") for root, what in mounts_of("cgroup") if "freezer" in what]
        super().__init__(places, "frozen")
        self._states = ("1", "0") if self.file.name == "cgroup.freeze" else ("FROZEN", "THAWED")
        self.add(pid)

    def freeze(self):
        self.file.write_text(self._states[0])

    def thaw(self):
        self.file.write_text(self._states[1])

    def remove(self):
        self.thaw()
        super().remove()


class Killable(Group):
    """One of version 2, from Linux 5.14 on."""

    def __init__(self):
        super().__init__([(root, "cgroup.kill") for root, _ in mounts_of("cgroup2")], "killed")

    @contextlib.contextmanager
    def entered(self):
        """What is started meanwhile is in the group."""
        self.add(os.getpid())
        try:
            yield
        finally:
            (self.root / "cgroup.procs").write_text(str(os.getpid()))

    def kill(self):
        self.file.write_text("1")

    def remove(self):
        deadline = time.monotonic() + 10
        while self.pids() and time.monotonic() < deadline:
            time.sleep(0.05)
        super().remove()
