"""Hostile targets: Pythons that change their memory while they are read, programs that only look like a
Python, and names that want to be paths, escapes or HTML. dynprof-bpf, by default a build with AddressSanitizer and
UBSan, must end in time, with a status that it means, a clean output, and a target that goes on."""

from __future__ import annotations

import functools
import json
import os
import random
import re
import resource
import shutil
import subprocess
import threading
import time
from pathlib import Path

import support
from job import FAULTS, Job
from results import Row

PROGRAMS = support.REPO / "tests" / "programs"
SANITIZED = support.REPO / "build" / "san" / "dynprof-bpf"
TARGET_MS = 12_000
VERB_LIMIT_S = 60  # sanitized, on a busy machine
MEMORY_LIMIT_MB = 3000
BROKEN = re.compile(r"Sanitizer|runtime error:|terminate called|Assertion|Traceback|core dumped")
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
OVERRIDE = "\u202e"  # right to left: data in JSON, but not for a terminal
# As a directory that the executable lies in; a path in /proc may hold anything but NUL.
EVIL_FOLDER = "\x1b]0;owned\x07<script>alert(1)<script> ..\n99.99% fake row\u202e"
SANITIZERS = {
    "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:exitcode=99",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}
KINDS = ("scribbling", "forged")
# Prints _Py_DebugOffsets, and what is between it and the field whose offset its sixth word is.
PRINT_OFFSETS = """
import ctypes, sys
runtime = ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime"))
interpreters_head = ctypes.c_uint64.from_address(runtime + 5 * 8).value
sys.stdout.buffer.write(ctypes.string_at(runtime, interpreters_head))
"""


def interpreters():
    """Those that can be profiled: the newest of each minor version and linkage."""
    found = [*support.interpreters(), *support.unpacked_interpreters()]
    return [i for i in found if (3, 10) <= i.minor <= (3, 15)]


@functools.lru_cache(maxsize=None)
def debug_offsets():
    """{version: bytes} of the interpreters that have _Py_DebugOffsets."""
    return {
        i.minor: subprocess.run(
            [i.path, "-c", PRINT_OFFSETS], capture_output=True, check=True
        ).stdout
        for i in interpreters()
        if i.minor >= (3, 13)
    }


class Target:
    """One hostile process. `chance` decides what it is; the same seed gives the same one."""

    def __init__(self, kind, seed, folder):
        chance = random.Random(seed)
        self.kind, self.seed = kind, seed
        if kind == "forged":
            home = Path(folder) / chance.choice((EVIL_FOLDER, "plain"))
            home.mkdir(parents=True)
            described = sorted(debug_offsets())
            minor = chance.choice([(3, 10), (3, 11), (3, 12), *described])
            name = f"libpython3.{minor[1]}.so.1.0" if minor == (3, 12) else f"python3.{minor[1]}"
            program = home / name
            shutil.copy(support.REPO / "build" / "tests" / "programs" / "forged_python", program)
            argv, self.name = [program, seed, TARGET_MS], name
            if minor in described:
                offsets = Path(folder) / "offsets"
                offsets.write_bytes(debug_offsets()[minor])
                argv.append(offsets)
        else:
            interpreter = chance.choice(interpreters())
            argv = [interpreter.path, FAULTS / "hostile_job.py", seed, TARGET_MS]
            self.name = interpreter.label
        layout = chance.choice(("2.6", "2.9", "2.13"))
        env = {"PYTHONPATH": str(PROGRAMS / "fake_torch"), "FAKE_TORCH_LAYOUT": layout}
        self.job = Job(argv, Path(folder) / "target", env=env)
        self.early = chance.random() < 0.5

    def __str__(self):
        return f"{self.kind} {self.name}, seed {self.seed}"

    def begin(self):
        self.job.tell()


def judge(done, row, target, peak_mb):
    """One run of dynprof-bpf."""
    what = f"{target}: {' '.join(map(str, done.args[1:]))}"
    if done.rc not in (0, 1):
        row.fail(f"{what}: status {done.rc}\n{done.err[-3000:]}")
    elif found := BROKEN.search(done.err):
        row.fail(f"{what}: {found.group()}\n{done.err[-3000:]}")
    elif done.rc == 1 and not re.search(r"^error: \S", done.err, re.M):
        row.fail(f"{what}: status 1 without a reason\n{done.err[-3000:]}")
    if found := CONTROL.search(done.out + done.err):
        row.fail(f"{what}: a control character in the output: {found.group()!r}")
    if OVERRIDE in done.err or OVERRIDE in done.out and "--json" not in done.args:
        row.fail(f"{what}: a right-to-left override in the output")
    if re.search(r"^\s*99\.99% fake row", done.out + done.err, re.M):
        row.fail(f"{what}: a name became a line of its own")
    if done.seconds > VERB_LIMIT_S:
        row.fail(f"{what}: took {done.seconds:.0f} s")
    if peak_mb > MEMORY_LIMIT_MB:
        row.fail(f"{what}: {peak_mb:.0f} MB of memory")


def escaped():
    return [
        str(path) for folder in ("/tmp", "/etc") for path in Path(folder).glob("*dynprof-escaped*")
    ]


class Round:
    """What is done to one target."""

    def __init__(self, binary, folder, row):
        self._binary, self._row, self._folder = binary, row, Path(folder)
        self._runner = support.Dynprof(self._folder, binary)

    def run(self, target, *arguments):
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        running = self._runner.start(*arguments, env=SANITIZERS)
        try:
            done = running.wait(2 * VERB_LIMIT_S)
        except AssertionError as problem:
            self._row.fail(
                f"{target}: {' '.join(map(str, arguments))} hangs\n{str(problem)[-3000:]}"
            )
            return None
        after = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        judge(done, self._row, target, after / 1024 if after > before else 0)
        return done

    def read(self, target):
        """The verbs that read memory."""
        pid = target.job.pid
        for verb in (
            ("dump",),
            ("dump", "--json"),
            ("compiles",),
            ("compiles", "--json"),
            ("compiles", "--times"),
        ):
            done = self.run(target, verb[0], "-p", pid, *verb[1:])
            if done and done.rc == 0 and "--json" in verb:
                try:
                    json.loads(done.out)
                except ValueError as problem:
                    self._row.fail(f"{target}: {verb}: {problem}")

    def record(self, target, number):
        out = self._folder / f"out-{number}"
        hertz = "1999" if number % 2 else "199"
        arguments = [
            "record",
            "-p",
            target.job.pid,
            "-F",
            hertz,
            "-d",
            "1500ms",
            "-o",
            out,
        ]
        if number % 3 == 0:
            arguments.append("--no-direct-map")
        done = self.run(target, *arguments)
        if done and done.rc == 0:
            self.run(target, "report", out)
            exported = self.run(
                target, "export", out, "-f", "chrome", "-o", self._folder / f"trace-{number}.json"
            )
            if exported and exported.rc == 0:
                json.loads((self._folder / f"trace-{number}.json").read_bytes())
        shutil.rmtree(out, ignore_errors=True)

    def close(self):
        self._runner.close()


def attack(kind, seed, binary, folder, row):
    """One target, read and recorded; `row` takes what went wrong."""
    target = Target(kind, seed, folder)
    round_ = Round(binary, folder, row)
    try:
        target.job.wait_for("ready", 60)
        # Hostile before anybody looks at it, or in the midst of what is done first.
        later = threading.Timer(0 if target.early else 1, target.begin)
        later.start()
        if seed % 2:
            round_.record(target, seed)
            round_.read(target)
        else:
            round_.read(target)
            round_.record(target, seed)
        later.join()
        outcome = target.job.finish(TARGET_MS / 1000 + 30)
        if outcome.status != 0 or not outcome.out.endswith("survived\n"):
            row.harm(f"{target}: {outcome}\n{target.job.err[-1000:]}")
    finally:
        round_.close()
        target.job.kill()
    for path in escaped():
        row.fail(f"{target}: wrote {path}")


def run(kind, seconds, folder, binary=None, seed=None):
    """Targets of one kind for so long."""
    binary = binary or (SANITIZED if SANITIZED.exists() else support.BINARY)
    seed = seed if seed is not None else int.from_bytes(os.urandom(4), "little")
    row = Row(
        f"hostile: {kind}", note=f"seed {seed}, {'sanitized' if binary == SANITIZED else 'plain'}"
    )
    began = time.monotonic()
    while time.monotonic() - began < seconds or row.runs == 0:
        place = Path(folder) / f"{kind}-{seed + row.runs}"
        place.mkdir(parents=True)
        attack(kind, seed + row.runs, binary, place, row)
        shutil.rmtree(place, ignore_errors=True)
        row.runs += 1
    row.seconds = time.monotonic() - began
    return row
