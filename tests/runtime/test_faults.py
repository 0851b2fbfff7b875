"""The fault suites (tests/faults) in their short form; `make faults` runs the long one.

A target must behave as without a profiler, whatever it does and whatever happens to the profiler; nothing may be
left behind, recordings must be readable, and exit status and messages right."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import support

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "faults"))

import awkward  # noqa: E402
import hostile  # noqa: E402
import inject  # noqa: E402
import leftovers  # noqa: E402
import pool  # noqa: E402
import specials  # noqa: E402

pytestmark = pytest.mark.root_bpf

INJECTIONS = 1  # of each kind; `make faults` has a thousand in all
HOSTILE_SECONDS = 10  # of each kind


def assert_good(row):
    assert row.good, "\n".join([str(row), *row.details()])


@pytest.fixture(scope="module")
def folder(venv_python, require_root_bpf):
    """pytest's own are root's alone, and a target becomes another user."""
    made = Path(tempfile.mkdtemp(prefix="dynprof-faults-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(scope="module")
def lab(folder):
    made = pool.Lab(folder / "lab")
    yield made
    made.close()


@pytest.mark.parametrize("target", awkward.short_table(), ids=lambda target: target.name)
def test_awkward_target(target, folder):
    assert_good(awkward.run(target, folder / target.name.replace(" ", "-")))


@pytest.mark.parametrize("name", inject.KINDS)
def test_injected(name, lab):
    assert_good(inject.run(name, INJECTIONS, lab))


@pytest.mark.parametrize(
    "name, function",
    specials.table(short=True),
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_fault(name, function, lab):
    row = specials.run(name, function, lab)
    assert_good(row)
    if row.note.startswith("skipped: "):
        pytest.skip(row.note.removeprefix("skipped: "))


@pytest.mark.parametrize("kind", hostile.KINDS)
def test_hostile_target(kind, folder):
    assert_good(hostile.run(kind, HOSTILE_SECONDS, folder))


# ---- that the suites see what they look for ------------------------------------------------------


def test_changed_code_is_seen(spawn, interpreters):
    """One byte of an executable page, written as a uprobe's breakpoint is."""
    program = (
        "import ctypes, sys\n"
        "libc = ctypes.CDLL(None)\n"
        "page = ctypes.cast(libc.qsort, ctypes.c_void_p).value & ~4095\n"
        "print('ready', flush=True)\n"
        "sys.stdin.readline()\n"
        "assert libc.mprotect(ctypes.c_void_p(page), 4096, 7) == 0\n"
        "ctypes.memset(page + 7, 0xcc, 1)\n"
        "assert libc.mprotect(ctypes.c_void_p(page), 4096, 5) == 0\n"
        "print('changed', flush=True)\n"
        "sys.stdin.readline()\n"
    )
    target = spawn([interpreters[-1].path, "-c", program])
    assert leftovers.changed_code(target.pid) == []
    target.send("go")
    target.wait_for("changed")
    assert [
        Path(path).name.startswith("libc") for path, _ in leftovers.changed_code(target.pid)
    ] == [True]


def test_what_a_recording_uses_is_seen(lab):
    """While it is under way: its process, and breakpoints or changed code in the target."""
    target, snapshot = lab.standing_target()
    target.tell("go")
    running = lab.start(
        "record", "-p", target.pid, "-d", "30s", "-o", lab.folder / "seen"
    )
    try:
        specials.sampling(running)
        target.quiet()
        assert running.pid in leftovers.processes_of(lab.marker)
        assert snapshot.differences(), "neither a breakpoint nor a changed page of code"
        target.tell("go")
    finally:
        running.kill()
    target.quiet()
    assert lab.left.found(snapshot) == []
    assert target.end() == pool.GOOD


def test_a_program_without_an_owner_is_seen():
    """A BPF program that only a file of a BPF file system holds."""
    names = leftovers.our_program_names()
    assert {"sample_cpu", "process_fork", "find_pid_level"} <= names
    pin = Path(f"/sys/fs/bpf/dynprof-faults-{os.getpid()}")
    program = support.REPO / "build" / "bpf" / "pid_level.bpf.o"
    done = subprocess.run(
        [support.bpftool(), "prog", "load", program, pin], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"cannot pin a program: {done.stderr.strip()}")
    try:
        assert "find_pid_level" in leftovers.orphaned_programs(names).values()
    finally:
        pin.unlink()


def test_harm_is_detected(folder):
    """A target that a signal ends."""

    def kill(pid, ended, folder):
        os.kill(pid, signal.SIGSEGV)

    row = awkward.run(
        awkward.Target("killed", "plain_work", 20, kill, recorded=False), folder / "killed"
    )
    assert len(row.harmed) == 1 and not row.good
    assert "status -11" in row.harmed[0]
