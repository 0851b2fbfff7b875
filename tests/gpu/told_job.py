"""A job on a GPU that works when it is told to, and recordings of it: for the checks beside this file."""

import argparse
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

TRACED, REFUSED = "is traced", "another CUPTI client"
WITHOUT = "without libdynprof_cupti.so"
ANSWER_SECONDS = 150
BUILD = Path(os.environ.get("DYNPROF_BUILD", Path(__file__).resolve().parent.parent.parent / "build"))


def arguments(description):
    """The parser of a check's arguments; resolved(parser) reads them."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    return parser


def resolved(parser):
    options = parser.parse_args()
    options.build, options.folder = options.build.resolve(), options.folder.resolve()
    return options


def tell(wrong):
    for text in wrong:
        print(f"WRONG {text}")
    return wrong


def verdict(wrong):
    """The last line of a check that has told what is wrong, and its exit status."""
    print(f"{'FAILED' if wrong else 'passed'}: {len(wrong)} differences")
    return 1 if wrong else 0


class Job:
    """program: answers `ready` once it is, and each line on its standard input by `done ...`.

    library: None, or libdynprof_cupti.so, which the CUDA driver then loads at the start. under: words of a command
    that starts it."""

    def __init__(self, program, library=None, environment=None, under=()):
        self.process = subprocess.Popen(
            [*under, sys.executable, program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "CUDA_INJECTION64_PATH": str(library or "none"), **(environment or {})},
        )
        self.pid = self.process.pid

    def await_ready(self):
        self.pid = int(self._await_line("ready").split()[1])
        return self

    def tell(self, line):
        """What the job answers, without `done`."""
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return self._await_line("done").split()[1:]

    def work(self, path=""):
        """One round of train_job.py's work, under torch.profiler if there is a path; how long it took."""
        began = time.monotonic()
        self.tell(f"work {path}")
        return time.monotonic() - began

    def end(self):
        self.process.stdin.write("exit\n")
        self.process.stdin.close()
        if self.process.wait(60) != 0:
            raise SystemExit(f"the job ended with {self.process.returncode}")

    def maps(self):
        """The files that are mapped, and how many mappings there are."""
        lines = Path(f"/proc/{self.pid}/maps").read_text().splitlines()
        return {line.split(maxsplit=5)[5] for line in lines if "/" in line}, len(lines)

    def threads(self):
        """Their names, and how many have each."""
        return Counter(path.read_text().strip() for path in Path(f"/proc/{self.pid}/task").glob("*/comm"))

    def _await_line(self, word):
        # A job that hangs ends the check, with what its threads were at.
        watch = threading.Timer(ANSWER_SECONDS, self._give_up, (word,))
        watch.start()
        try:
            for line in self.process.stdout:
                if line.startswith(word):
                    return line
        finally:
            watch.cancel()
        raise SystemExit(f"the job ended with {self.process.wait()}")

    def _give_up(self, word):
        print(f"process {self.pid} did not say {word!r} in {ANSWER_SECONDS} s", file=sys.stderr)
        subprocess.run([BUILD / "dynprof-bpf", "dump", "--pid", str(self.pid)], stdout=sys.stderr, check=False)
        if debugger := shutil.which("gdb") or shutil.which("cuda-gdb"):
            words = ["timeout", "60", debugger, "-batch", "-p", str(self.pid), "-ex", "thread apply all backtrace 30"]
            subprocess.run(words, stdout=sys.stderr, stderr=subprocess.DEVNULL, check=False)
        self.process.kill()


class Recording:
    """`dynprof-bpf record` of a job, from when it has said `sign`."""

    def __init__(self, build, folder, job, name, mode="on", sign=TRACED, options=()):
        self.folder, self.log = folder / name, folder / f"{name}.log"
        with open(self.log, "w") as errors:
            self.process = subprocess.Popen(
                [build / "dynprof-bpf", "record", "--gpu", mode, "--pid", str(job.pid),
                 "-o", self.folder, *options],
                stderr=errors,
            )  # fmt: skip
        began = time.monotonic()
        self.said = self._await_text(sign)
        self.attach_seconds = time.monotonic() - began

    def stop(self):
        began = time.monotonic()
        self.process.send_signal(2)
        if self.process.wait(120) != 0:
            raise SystemExit(self.log.read_text())
        self.stop_seconds = time.monotonic() - began
        return self

    def _await_text(self, pattern, timeout=60):
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline and self.process.poll() is None:
            found = re.search(pattern, self.log.read_text())
            if found:
                return found[0]
            time.sleep(0.02)
        self.process.kill()
        raise SystemExit(f"{pattern!r} never came:\n{self.log.read_text()}")
