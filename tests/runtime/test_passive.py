"""--passive changes nothing in the target: no probe in its code, no watchpoint, and its compiles are named
all the same, by samples."""

import os
import re
import time
from pathlib import Path

import pytest

import support

pytestmark = pytest.mark.root_bpf

JOB = support.REPO / "tests" / "programs" / "busy_torch.py"


def changed_code(pid):
    """Files whose code is not as on disk in this process: a probe is a page of its own."""
    changed, name = set(), ""
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        head = re.match(r"[0-9a-f]+-[0-9a-f]+ (\S+) \S+ \S+ \d+ *(.*)$", line)
        if head:
            name = head.group(2) if head.group(1) == "r-xp" and "/" in head.group(2) else ""
            if head.group(2) == "[uprobes]":
                changed.add("[uprobes]")
        elif name and re.match(r"Private_Dirty: +[1-9]", line):
            changed.add(name)
    return changed


def perf_events(pid):
    """The perf events a process has open: those that sample, uprobes and hardware watchpoints."""
    links = []
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            links.append(os.readlink(fd))
        except FileNotFoundError:
            pass
    return links.count("anon_inode:[perf_event]")


def record(dynprof, target, out, *options):
    run = dynprof.start("record", "-F", "199", "-p", target.pid, "-o", out, *options)
    run.wait_for_err("Sampling", 60)
    time.sleep(5)
    seen = changed_code(target.pid), perf_events(run.pid)
    run.interrupt()
    result = run.wait(120)
    assert result.rc == 0, result
    return seen


def test_nothing_in_the_target_is_changed(dynprof, spawn, venv_python, tmp_path):
    target = spawn([venv_python, JOB], timeout=120)
    assert not changed_code(target.pid)
    cpus = len(os.sched_getaffinity(0))

    code, events = record(dynprof, target, tmp_path / "passive", "--passive")
    assert not code, f"code was changed in {code}"
    assert events == cpus, "perf events that do not sample"
    assert not changed_code(target.pid)
    report = dynprof.run("report", tmp_path / "passive")
    assert re.search(r"^# Passive: ", report.out, re.M), report
    assert "Exact times" not in report.out, report
    inside = re.search(r"In compiles: ([\d,]+) samples, ([\d.]+)% with a trace id", report.out)
    assert inside and int(inside.group(1).replace(",", "")) > 50, report
    assert float(inside.group(2)) > 90, report
    assert re.search(r"^ +0/0 ", report.out, re.M), report

    # The same looks at a recording that may change it: the test above can fail.
    code, events = record(dynprof, target, tmp_path / "active")
    assert code and events > cpus, (code, events)
    report = dynprof.run("report", tmp_path / "active")
    assert "Exact times" in report.out and "# Passive" not in report.out, report
    assert target.alive()


def test_passive_and_gpu_on_contradict_each_other(dynprof, tmp_path):
    result = dynprof.run("--passive", "--gpu", "on", "--pid", os.getpid(), cwd=tmp_path)
    assert result.rc == 2 and "--passive" in result.err, result
