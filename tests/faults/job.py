"""Targets of the fault suites: started, released, and judged by what they print and how they end."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import support

FAULTS = support.REPO / "tests" / "faults"
# Never the sanitized build's: they are loaded into targets.
NATIVE = support.REPO / "build" / "tests" / "faults"


def python():
    found = support.venv_python()
    assert found is not None, f"no venv in {support.VENV}: run make setup"
    return found.path


@dataclass(frozen=True)
class Outcome:
    """What must be the same with a profiler and without."""

    out: str
    status: int | None  # None: it did not end

    def __str__(self):
        return f"status {self.status}, output {self.out[-300:]!r}"


class Job:
    """A target whose output goes to files, so that it never waits for us. It has a session of its own."""

    def __init__(self, argv, folder, env=None, cwd=None, preexec=None, pass_fds=()):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._out, self._err = self.folder / "stdout", self.folder / "stderr"
        with open(self._out, "wb") as out, open(self._err, "wb") as err:
            self.process = subprocess.Popen(
                [str(word) for word in argv],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=err,
                env={
                    **os.environ,
                    "FAULTS_NATIVE": str(NATIVE),
                    "PYTHONDONTWRITEBYTECODE": "1",
                    "TMPDIR": str(self.folder),
                    **(env or {}),
                },
                cwd=cwd,
                start_new_session=True,
                preexec_fn=preexec,
                pass_fds=pass_fds,
            )
        self.pid = self.process.pid

    @property
    def out(self):
        return self._out.read_text(errors="replace")

    @property
    def err(self):
        return self._err.read_text(errors="replace")

    def wait_for(self, word, timeout=120):
        deadline = time.monotonic() + timeout
        while word not in self.out:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(
                    f"no {word!r} from the target: {self.outcome()}\n{self.err[-2000:]}"
                )
            time.sleep(0.01)

    def tell(self, line="go"):
        try:
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it ended: its status says how

    def outcome(self):
        return Outcome(self.out, self.process.poll())

    def finish(self, timeout):
        """How it ended; with status None if it did not in this time. It is gone afterwards."""
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            pass
        outcome = self.outcome()
        self.kill()
        return outcome

    def kill(self):
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.process.stdin.close()
