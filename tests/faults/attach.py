"""Loading the GPU library into a CPython that runs (user/inject), again and again: into each version, whatever its
main thread does, and with the loading program killed at random moments. The target must work on as without it, and
nothing may be left but the library."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import support
from job import FAULTS, Job
from leftovers import changed_code
from results import Row

LIBRARY = support.REPO / "build" / "libdynprof_cupti.so"
TOOL = support.REPO / "build" / "tests" / "load_library"
LIMIT_S = 60
LONG_MS, SHORT_MS = 4000, 150
LONGEST_STOP_NS = 1_000_000  # that a stop of one thread should take
# Kind of target -> how long it may take to a safe point. In input() it comes to none; of a main thread that waits in a
# lock CPython knows one from 3.12 on, of another thread. One that uses GS is only loaded into where it is not stopped.
KINDS = {
    "malloc": LONG_MS,
    "gc": LONG_MS,
    "lock": LONG_MS,
    "join": LONG_MS,
    "locked": LONG_MS,
    "c": LONG_MS,
    "registers": LONG_MS,
    "gs": LONG_MS,
    "signals": LONG_MS,
    "fork": LONG_MS,
    "input": SHORT_MS,
}
DONE = "ready\ndone 0 wrong\n"


def comes_to_none(python, kind):
    least = {"join": (3, 12), "gs": (3, 14)}
    return kind == "input" or python.minor < least.get(kind, python.minor)


def is_for(python, kind):
    """Before 3.13 a pending call is added without this mutex; from 3.14 on it is not needed for such a main thread."""
    return kind != "locked" or python.minor == (3, 13)


def patience_ms(python, kind):
    return SHORT_MS if comes_to_none(python, kind) else KINDS[kind]


def pythons():
    found = support.interpreters() + support.unpacked_interpreters()
    return [python for python in found if (3, 10) <= python.minor <= (3, 15)]


def loader(pid, milliseconds, *options):
    return subprocess.Popen(
        [TOOL, str(pid), LIBRARY, str(milliseconds), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


class Target:
    def __init__(self, python, kind, folder):
        self.kind = kind
        read, self._stop = os.pipe()
        self.job = Job(
            [python.path, FAULTS / "attach_job.py", kind, read],
            folder,
            pass_fds=(read,),
        )
        os.close(read)
        self.job.wait_for("ready")
        self.pid = self.job.pid

    def mappings(self):
        return Path(f"/proc/{self.pid}/maps").read_text()

    def has_library(self):
        return str(LIBRARY) in self.mappings()

    def has_thread(self):
        tasks = Path(f"/proc/{self.pid}/task").iterdir()
        return any((task / "comm").read_text() == "dynprof-gpu\n" for task in tasks)

    def left(self):
        """Mappings of the pending call that stay: they go a moment after it was made or found to be cancelled."""
        deadline = time.monotonic() + 5
        while True:
            lines = [line for line in self.mappings().splitlines() if line.endswith("/dev/zero (deleted)")]
            if not lines or time.monotonic() > deadline:
                return lines
            time.sleep(0.01)

    def end(self):
        """Why it did not end as it should; None: it did."""
        os.close(self._stop)
        if self.kind == "input":
            self.job.tell("end")
        outcome = self.job.finish(LIMIT_S)
        if outcome.out != DONE or outcome.status != 3:
            return f"{outcome}\n{self.job.err[-2000:]}"
        return None


def check_loaded(target, row, what):
    deadline = time.monotonic() + 5
    while not target.has_thread() and time.monotonic() < deadline:
        time.sleep(0.005)
    if not target.has_library() or not target.has_thread():
        row.fail(f"{what}: the library is not there")
    if target.left():
        row.fail(f"{what}: mapped: {target.left()}")


def load_once(python, kind, folder, row, chance, stops):
    """Whether it was cancelled."""
    target = Target(python, kind, folder)
    what = f"{python} {kind}"
    time.sleep(chance.uniform(0, 0.03))
    tool = loader(target.pid, patience_ms(python, kind), "in-place")
    try:
        out, err = tool.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        row.fail(f"{what}: the loading hangs\n{support.stacks_of(tool.pid)}")
        tool.kill()
        out, err = tool.communicate()
    answer = json.loads(out) if out else {"loaded": False, "error": err}
    if answer["loaded"]:
        stops.append(answer["stopped_ns"])
        check_loaded(target, row, what)
    reason = "uses the register GS" if kind == "gs" else "ran no Python code"
    cancelled = not answer["loaded"] and reason in answer["error"]
    if not answer["loaded"] and not (cancelled and comes_to_none(python, kind)):
        row.fail(f"{what}: not loaded: {answer}\n{target.job.err[-1000:]}")
    if changed := changed_code(target.pid):
        row.fail(f"{what}: changed code: {changed}")
    if problem := target.end():
        row.harm(f"{what}: {problem}")
    return cancelled


def kill_once(python, kind, folder, row, chance, loaded, seconds):
    """The loading program is killed; then another one loads it, or finds it there."""
    target = Target(python, kind, folder)
    moment = chance.uniform(0, 1.1 * seconds)
    what = f"{python} {kind}, killed after {moment * 1000:.1f} ms"
    before = folders()
    tool = loader(target.pid, KINDS[kind])
    time.sleep(moment)
    tool.send_signal(signal.SIGKILL)
    out, _ = tool.communicate()
    time.sleep(0.02)
    loaded["by the one that was killed"] += target.has_library() and not out
    if not target.has_library():
        again = loader(target.pid, KINDS[kind])
        out, err = again.communicate(timeout=LIMIT_S)
        # A request of the killed one can come first.
        if not target.has_library():
            row.fail(f"{what}: not loaded afterwards: {out}{err}\n{target.job.err[-1000:]}")
        loaded["by the next one"] += 1
    if left := folders_left(before, target.pid):
        row.fail(f"{what}: in /tmp: {left}")
    if target.left():
        row.fail(f"{what}: mapped: {target.left()}")
    if problem := target.end():
        row.harm(f"{what}: {problem}")


def folders():
    """Those with the scripts of loading programs."""
    return set(Path("/tmp").glob("dynprof-bpf-" + "[0-9a-f]" * 16))


def is_of(folder, pid):
    """Not of a loading program of another suite that runs at the same time."""
    try:
        return f"os.getpid() != {pid}:" in (folder / "load.py").read_text()
    except OSError:
        return False


def folders_left(before, pid):
    """Another process removes it, once the script has run that the program asked for."""
    deadline = time.monotonic() + 5
    while left := [folder for folder in folders() - before if is_of(folder, pid)]:
        if time.monotonic() > deadline:
            return [f"{folder}: {sorted(os.listdir(folder))}" for folder in left]
        time.sleep(0.02)
    return []


def spread(stops):
    """Median, 99th percentile and longest, in ms, and how many were longer than a stop should be."""
    stops = sorted(stop for stop in stops if stop)
    if not stops:
        return "not stopped"
    at = [stops[len(stops) // 2], stops[min(len(stops) - 1, len(stops) * 99 // 100)], stops[-1]]
    longer = sum(stop > LONGEST_STOP_NS for stop in stops)
    text = "stopped ms: median {:.3f}, 99 % {:.3f}, longest {:.3f}".format(*(ns / 1e6 for ns in at))
    return f"{text}; {longer} of {len(stops)} longer than {LONGEST_STOP_NS / 1e6:g} ms"


def run(python, kind, times, folder, seed=None):
    row = Row(f"attach: {python} {kind}", times)
    chance = random.Random(f"{seed} {python} {kind}")
    began, stops, cancelled = time.monotonic(), [], 0
    for count in range(times):
        place = Path(folder) / f"{python.minor[1]}-{python.shared}-{kind}-{count}"
        cancelled += load_once(python, kind, place, row, chance, stops)
        if row.harmed or len(row.failed) > 5:
            break
    row.seconds = time.monotonic() - began
    row.note = f"{len(stops)} loaded, {cancelled} cancelled; {spread(stops)}"
    return row


def clean_seconds(python, folder):
    """How long a loading takes that is not killed."""
    target = Target(python, "fork", folder)
    began = time.monotonic()
    loader(target.pid, LONG_MS).communicate(timeout=LIMIT_S)
    seconds = time.monotonic() - began
    target.end()
    return seconds


def run_kills(python, times, folder, seed=None):
    row = Row(f"attach: {python} killed", times)
    chance = random.Random(f"{seed} {python} kill")
    seconds = clean_seconds(python, Path(folder) / f"{python.minor[1]}-{python.shared}-clean")
    began, loaded = time.monotonic(), {"by the one that was killed": 0, "by the next one": 0}
    for count in range(times):
        kind = ("malloc", "registers", "signals", "fork")[count % 4]
        place = Path(folder) / f"{python.minor[1]}-{python.shared}-kill-{count}"
        kill_once(python, kind, place, row, chance, loaded, seconds)
        if row.harmed or len(row.failed) > 5:
            break
    row.seconds = time.monotonic() - began
    counts = ", ".join(f"{count} loaded {who}" for who, count in loaded.items())
    row.note = f"killed within {seconds * 1100:.0f} ms: {counts}"
    return row
