"""A process that calls time.time_ns more often than a compile does: it must not pay for the probe there, which is
removed, and one note says so."""

import re
import signal
import sys
import time
from pathlib import Path

import pytest

import samples
import support

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "faults"))

import leftovers  # noqa: E402

pytestmark = pytest.mark.root_bpf

JOB = support.REPO / "tests" / "programs" / "clock_calls_job.py"
NOTE = r"process {} calls time\.time_ns more than {} times a second outside of torch\.compile: the probe was removed"
LIMIT = int(
    re.search(
        r"#define DP_CLOCK_CALLS_PER_SECOND (\d+)", (support.REPO / "bpf" / "limits.h").read_text()
    )[1]
)
PATIENCE_S = 30


def make_calls(target, count):
    before = target.lines.count(f"called {count}")
    target.send(str(count))
    deadline = time.monotonic() + 120
    while target.lines.count(f"called {count}") == before:
        assert target.alive() and time.monotonic() < deadline, target.text
        time.sleep(0.02)


def wait_for_probes(pid, count):
    """How many pages of code the process has that are not as in their files: after a while, `count`."""
    deadline = time.monotonic() + PATIENCE_S
    while len(found := leftovers.changed_code(pid)) != count and time.monotonic() < deadline:
        time.sleep(0.1)
    assert len(found) == count, found


def test_the_probe_is_removed_above_a_rate(dynprof, spawn, venv_python, tmp_path):
    target = spawn([venv_python, JOB])
    assert leftovers.changed_code(target.pid) == []
    run = dynprof.start("--pid", target.pid, "-F", 99, "-o", tmp_path / "out")
    samples.wait_until_sampling(run)
    wait_for_probes(target.pid, 1)  # this target has no function with a probe but time.time_ns

    make_calls(target, LIMIT // 2)
    time.sleep(1)
    wait_for_probes(target.pid, 1)
    assert "time.time_ns" not in run.err, run.peek()

    many = 100 * LIMIT  # above the limit even where each takes a quarter of a millisecond
    make_calls(target, many)
    note = NOTE.format(target.pid, LIMIT)
    run.wait_for_err(note, PATIENCE_S)
    wait_for_probes(target.pid, 0)

    make_calls(target, many)
    run.signal(signal.SIGINT)
    done = run.wait()
    assert done.rc == 0 and len(re.findall(note, done.err)) == 1, done
    assert leftovers.changed_code(target.pid) == []
    make_calls(target, 1)
