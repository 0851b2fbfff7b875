"""Reading another process's memory in place, without the lock of its memory map (bpf/remote_memory.bpf.c)."""

import time
from pathlib import Path

import pytest

import samples
import support

pytestmark = pytest.mark.root_bpf

CHECK = support.BUILD / "tests" / "remote_pages_check"
STATS_SWITCH = Path("/proc/sys/kernel/bpf_stats_enabled")
PROGRAM = "print('ready', flush=True)\nwhile True: sum(range(1000))"


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    done = support.Running([CHECK], tmp_path_factory.mktemp("remote_pages")).wait()
    if done.rc == 77:
        pytest.skip(done.out.strip())
    assert done.rc == 0, done
    return [line.split(" ", 1) for line in done.out.splitlines()]


def test_what_is_there_is_read_and_nothing_else(said):
    assert [what for judged, what in said if judged != "right"] == []
    assert len(said) == 15


def runs_of(program, pid):
    """How often a program of a process ran, as the kernel counts it while kernel.bpf_stats_enabled is 1."""
    held = support.bpf_programs_of(pid)
    return sum(
        one.get("run_cnt", 0) for one in support.bpf_programs() if one.get("name") == program and one["id"] in held
    )


@pytest.fixture
def counted_programs():
    before = STATS_SWITCH.read_text()
    STATS_SWITCH.write_text("1")
    yield
    STATS_SWITCH.write_text(before)


def test_a_recording_reads_so(said, counted_programs, dynprof, spawn, tmp_path):
    target = spawn([support.venv_python().path, "-c", PROGRAM])
    target.wait_for("^ready")
    run = dynprof.start("-p", target.pid, "-o", tmp_path / "out")
    samples.wait_until_sampling(run)
    end = time.monotonic() + 30
    while runs_of("read_remote", run.pid) == 0 and time.monotonic() < end:
        time.sleep(0.1)
    assert runs_of("read_remote", run.pid) > 0
    run.interrupt()
    assert run.wait().rc == 0
