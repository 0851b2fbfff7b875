"""`record` on a terminal asks whether to load the GPU library into a process that could have it, and loads it after
a yes alone."""

import fcntl
import os
import pty
import re
import subprocess
import termios
import time
from pathlib import Path

import pytest

import support
from gpu_recording import start_job

pytestmark = pytest.mark.root_bpf

QUESTION = "Load libdynprof_cupti.so into process"


class OnTerminal:
    """`record`, with a terminal of its own."""

    def __init__(self, *arguments):
        self.ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [support.BINARY, "record", *map(str, arguments)],
            stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        os.close(theirs)
        self.text = ""

    def wait_for(self, pattern, timeout=60):
        assert self._read_until(lambda: re.search(pattern, self.text), timeout), self.text

    def _read_until(self, is_over, timeout):
        """Whether it was over before the program closed the terminal."""
        deadline = time.monotonic() + timeout
        os.set_blocking(self.ours, False)
        while not is_over():
            assert time.monotonic() < deadline, self.text
            try:
                self.text += os.read(self.ours, 4096).decode()
            except BlockingIOError:
                time.sleep(0.02)
            except OSError:
                return False
        return True

    def say(self, text):
        os.write(self.ours, text.encode())

    def rest(self, timeout=60):
        """What it writes until it ends."""
        self._read_until(lambda: self.process.poll() is not None, timeout)
        assert self.process.wait(timeout) == 0, self.text
        return self.text

    def end(self):
        self.process.kill()
        self.process.wait()
        os.close(self.ours)


def has_library(pid):
    return "libdynprof_cupti" in Path(f"/proc/{pid}/maps").read_text()


@pytest.mark.parametrize("answer, loaded", [("y\n", True), ("yes\n", True), ("\n", False), ("n\n", False),
                                            ("yy\n", False)])  # fmt: skip
def test_it_is_loaded_after_a_yes_alone(spawn, tmp_path, venv_python, answer, loaded):
    job = start_job(spawn, venv_python, "--polls", library=False)
    run = OnTerminal("--pid", job.pid, "-o", tmp_path / "out")
    try:
        run.wait_for(QUESTION)
        assert not has_library(job.pid)
        run.say(answer)
        run.wait_for("Sampling ")
        assert has_library(job.pid) == loaded
    finally:
        run.end()


def test_no_answer_is_a_no(spawn, tmp_path, venv_python):
    job = start_job(spawn, venv_python, "--polls", library=False)
    run = OnTerminal("--pid", job.pid, "-o", tmp_path / "out")
    try:
        run.wait_for(QUESTION)
        began = time.monotonic()
        run.wait_for("Sampling ")
        assert 9 < time.monotonic() - began < 30 and not has_library(job.pid)
    finally:
        run.end()


@pytest.mark.parametrize("arguments", [["--gpu", "off"], ["--passive"], ["-q"]])
def test_nothing_is_asked(spawn, tmp_path, venv_python, arguments):
    job = start_job(spawn, venv_python, "--polls", library=False)
    run = OnTerminal("--pid", job.pid, "-d", "1", *arguments, "-o", tmp_path / "out")
    try:
        assert QUESTION not in run.rest()
        assert not has_library(job.pid)
    finally:
        run.end()


def test_a_job_without_cuda_is_not_asked_about(spawn, tmp_path, venv_python):
    job = start_job(spawn, venv_python, "--polls", "--late", library=False)
    run = OnTerminal("--pid", job.pid, "-o", tmp_path / "out")
    try:
        run.wait_for("Sampling ")
        assert QUESTION not in run.text
    finally:
        run.end()
