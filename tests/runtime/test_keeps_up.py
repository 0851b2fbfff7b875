"""The collector ends when it is to end, however much there is to record, and what it writes is bounded."""

import gzip
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time

import pytest

import support

pytestmark = pytest.mark.root_bpf

PING_PONG = support.BUILD / "tests" / "programs" / "ping_pong"
PARENT = support.REPO / "tests" / "programs" / "ping_pong_parent.py"

# 60 idle processes with 20,000 mappings each, and a busy one: to read all their maps takes a second.
MANY_MAPPINGS = """
import mmap, os, sys
pages = mmap.mmap(-1, 40_000 * mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for page in range(0, 40_000, 2):
    pages.madvise(mmap.MADV_DONTFORK if page % 4 else mmap.MADV_DONTDUMP, page * mmap.PAGESIZE, mmap.PAGESIZE)
for _ in range(60):
    if os.fork() == 0:
        sys.stdin.read()
        os._exit(0)
print("ready", flush=True)
while True:
    sum(range(1000))
"""


@pytest.fixture
def ping_pong(spawn):
    return spawn([sys.executable, PARENT, PING_PONG])


def begin_record(dynprof, out, *options):
    run = dynprof.start("record", "-o", out, *options)
    run.wait_for_err("Sampling", 60)
    return run, time.monotonic()


def begin(dynprof, target, out, *options):
    return begin_record(dynprof, out, "-p", target.pid, *options)


def seconds_captured(result):
    return float(re.search(r"Captured .* in ([\d.]+) s:", result.err).group(1))


def is_readable(dynprof, out):
    report = dynprof.run("report", out)
    assert report.rc == 0 and "Samples:" in report.out, report
    return report


def cpu_of_a_unit():
    """CPU time of some work of a fixed size, by which that of other work is told on a machine of any speed."""
    begin = time.thread_time()
    for _ in range(4):
        json.loads(json.dumps(list(range(500_000))))
    return time.thread_time() - begin


def test_returns_to_the_prompt(dynprof, ping_pong, tmp_path):
    out, seconds = tmp_path / "out", 6
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run, began = begin(dynprof, ping_pong, out, "-d", seconds)
    result = run.wait(120)
    took = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert result.rc == 0 and "duration" in result.err, result
    # 13 units, 3.6 s, where nothing else runs.
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    unit = cpu_of_a_unit()
    assert used < 18 * unit, f"used {used:.1f} s of CPU, {used / unit:.1f} units\n{result}"
    # Where others run too it may wait for a CPU.
    assert took < 4 * (seconds + seconds / 2 + 2), f"took {took:.1f} s\n{result}"
    trace = gzip.decompress((out / "trace.json.gz").read_bytes())
    assert len(trace) <= 100_000_000
    assert b"pass_on" in trace
    # 100,000 waits a second would not fit.
    assert re.search(r"^note: 1 trace was reduced to fit into .* merged", result.err, re.M), result
    assert b'"merged_below_ns":' in trace[:10_000]
    is_readable(dynprof, out)


def ends_at_ctrl_c(dynprof, run, began, out):
    run.interrupt()
    asked = time.monotonic() - began
    result = run.wait(60)
    assert result.rc == 0 and "interrupted" in result.err, result
    # 200 ms, what was in the buffers, and a machine where everybody else runs too.
    assert seconds_captured(result) < asked + 1, result
    is_readable(dynprof, out)
    return result


def test_ctrl_c_under_load(dynprof, ping_pong, tmp_path):
    run, began = begin(dynprof, ping_pong, tmp_path / "out")
    time.sleep(2)
    ends_at_ctrl_c(dynprof, run, began, tmp_path / "out")


def test_ctrl_c_while_many_maps_are_read(dynprof, spawn, tmp_path):
    """The looks at all processes share one limit, so that events are read and Ctrl-C is seen between them."""
    job = spawn([sys.executable, "-c", MANY_MAPPINGS])
    job.wait_for("^ready$", 60)
    run, began = begin_record(dynprof, tmp_path / "out", "--all")
    time.sleep(1)
    result = ends_at_ctrl_c(dynprof, run, began, tmp_path / "out")
    assert "(0 lost)" in result.err, result


def test_second_ctrl_c_under_load(dynprof, ping_pong, tmp_path):
    run, _ = begin(dynprof, ping_pong, tmp_path / "out")
    time.sleep(2.5)
    run.interrupt()
    time.sleep(0.001)
    run.interrupt()
    asked = time.monotonic()
    result = run.wait(20)
    assert time.monotonic() - asked < 2, result
    assert result.rc == 128 + signal.SIGINT and "stopped at once" in result.err, result
    assert not (tmp_path / "out" / "trace.json.gz").exists()
    is_readable(dynprof, tmp_path / "out")


def test_max_size_under_load(dynprof, ping_pong, tmp_path):
    run, began = begin(dynprof, ping_pong, tmp_path / "out", "-d", 60, "--max-size", "2M")
    result = run.wait(90)
    assert time.monotonic() - began < 60, result
    assert result.rc == 0 and "size limit" in result.err, result
    # Some 2.5 MB are written in a second; then come the names of what was seen.
    assert 2 * 2**20 <= (tmp_path / "out" / "recording.dynprof").stat().st_size < 4 * 2**20


def test_stops_before_the_disk_is_full(dynprof, ping_pong, tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40M", "tmpfs", str(small)],
                             capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount a tmpfs: {mounted.stderr.strip()}")
    try:
        with open(small / "other", "wb") as file:
            file.write(bytes(36 << 20))
        run, began = begin(dynprof, ping_pong, small / "out", "-d", 60)
        result = run.wait(90)
        assert time.monotonic() - began < 60, result
        assert "disk nearly full" in result.err, result
        report = is_readable(dynprof, small / "out")
        assert "no end mark" not in report.err, report
    finally:
        dynprof.close()
        subprocess.run(["umount", str(small)], check=True)


def priority_becomes(run, policy, nice, within_s):
    """Of the thread that reads events."""
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        now = os.sched_getscheduler(run.pid), os.getpriority(os.PRIO_PROCESS, run.pid)
        if now == (policy, nice):
            return True
        time.sleep(0.01)
    return False


def test_priority_is_raised_only_while_it_is_late(dynprof, spawn, tmp_path):
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    target = spawn([sys.executable, "-c", "print('ready', flush=True)\nwhile True: sum(range(1000))"])
    run, _ = begin(dynprof, target, tmp_path / "out")
    # Where others use all CPUs it is late now and then.
    assert priority_becomes(run, os.SCHED_BATCH, usual, 30)
    run.signal(signal.SIGSTOP)
    time.sleep(0.2)
    run.signal(signal.SIGCONT)
    assert priority_becomes(run, os.SCHED_OTHER, -20, 10)
    assert priority_becomes(run, os.SCHED_BATCH, usual, 30)
    run.interrupt()
    assert run.wait(60).rc == 0


def test_a_policy_that_was_chosen_is_kept(dynprof, spawn, tmp_path):
    """As `chrt --idle 0 dynprof-bpf ...` does."""
    target = spawn([sys.executable, "-c", "print('ready', flush=True)\nwhile True: sum(range(1000))"])
    run = dynprof.start("record", "-p", target.pid, "-o", tmp_path / "out")
    os.sched_setscheduler(run.pid, os.SCHED_IDLE, os.sched_param(0))
    run.wait_for_err("Sampling", 60)
    run.signal(signal.SIGSTOP)
    time.sleep(0.2)
    run.signal(signal.SIGCONT)
    time.sleep(0.5)
    assert os.sched_getscheduler(run.pid) == os.SCHED_IDLE
    run.interrupt()
    assert run.wait(60).rc == 0
