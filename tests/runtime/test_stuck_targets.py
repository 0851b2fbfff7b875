"""Targets that let a read of theirs never return: of memory (userfaultfd), or of a file that they serve themselves
(FUSE). The others are recorded as if these were not there, and the profiler ends in time."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import samples
import support

pytestmark = pytest.mark.root_bpf

PROGRAMS = support.REPO / "tests" / "programs"
STRANGER = 54321
ORDINARY = """
def ordinary():
    return sum(number * number for number in range(1000))
print("ready", flush=True)
while True:
    ordinary()
"""
SERVED_CALLER = """
import ctypes, sys
spin = ctypes.CDLL(sys.argv[1]).spin
spin(1)
print("ready", flush=True)
spin(ctypes.c_long(1 << 62))
"""


def readers():
    """Processes of ours that read the memory of targets."""
    found = []
    for comm in Path("/proc").glob("[0-9]*/comm"):
        try:
            if comm.read_text() == "dynprof-reader\n":
                found.append(int(comm.parent.name))
        except OSError:
            pass
    return found


def start(spawn, argv):
    try:
        return spawn(argv)
    except Exception:
        if subprocess.run(argv, stdout=subprocess.DEVNULL, timeout=10, check=False).returncode == 77:
            pytest.skip("userfaultfd may not be used here")
        raise


def record(dynprof, tmp_path, *targets):
    before = set(readers())
    began = time.monotonic()
    pids = ",".join(str(target.pid) for target in targets)
    done = dynprof.run("--pid", pids, "-F", "199", "-d", "3", "-o", tmp_path / "out")
    assert done.rc == 0, done
    assert time.monotonic() - began < 60, done
    assert all(target.alive() for target in targets)
    assert set(readers()) <= before
    return done, samples.Dump(tmp_path / "out" / "recording.dynprof")


def native_names(dump, pid):
    return {frame.name for sample in dump.of_pid(pid) for frame in dump.whole_stack(sample.stack)}


def test_memory_that_never_arrives(dynprof, spawn, tmp_path, venv_python):
    stuck = start(spawn, [venv_python, PROGRAMS / "stuck_names.py"])
    other = spawn([venv_python, "-c", ORDINARY])
    done, dump = record(dynprof, tmp_path, stuck, other)
    assert done.err.count(f"reading the memory of process {stuck.pid} did not return") == 1, done
    assert f"memory of process {other.pid}" not in done.err
    assert "ordinary" in dump.functions(other.pid)
    assert dump.of_pid(stuck.pid)
    assert dump.counter("memory_stuck") == 1
    assert "processes whose memory was not read any further" in report_of(dynprof, tmp_path)


def report_of(dynprof, tmp_path):
    return dynprof.run("report", tmp_path / "out", "--losses").out


@pytest.fixture
def served_library(tmp_path):
    if not os.path.exists("/dev/fuse"):
        pytest.skip("no /dev/fuse")
    source = tmp_path / "library.c"
    source.write_text("long spin(long n) { volatile long i = 0; while (i < n) i++; return i; }\n")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", tmp_path / "plain.so", source], check=True)
    folder = tmp_path / "served"
    folder.mkdir()
    servers = []

    def serve(uid):
        arguments = [folder, str(uid), tmp_path / "plain.so", tmp_path / "hang"]
        server = subprocess.Popen(
            [sys.executable, PROGRAMS / "served_files.py", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        servers.append(server)
        if server.stdout.readline() != "ready\n":
            pytest.skip("FUSE cannot be mounted here")
        return folder / "library.so"

    yield serve
    for server in servers:
        server.stdin.close()
        server.wait(timeout=30)


@pytest.mark.parametrize("owner, refused", [(STRANGER, True), (0, False)], ids=["a user's", "root's"])
def test_files_that_a_user_serves(dynprof, spawn, tmp_path, venv_python, served_library, owner, refused):
    library = served_library(owner)
    target = spawn([venv_python, "-c", SERVED_CALLER, library])
    other = spawn([venv_python, "-c", ORDINARY])
    if refused:
        (tmp_path / "hang").touch()
    done, dump = record(dynprof, tmp_path, target, other)
    said = f"files that process {target.pid} maps or names are not opened"
    assert (said in done.err) == refused, done
    assert ("spin" in native_names(dump, target.pid)) != refused
    assert "ordinary" in dump.functions(other.pid)
    assert ("another user serves their file system" in report_of(dynprof, tmp_path)) == refused


STUCK_READ = """
#include <dlfcn.h>
#include <sys/uio.h>
#include <unistd.h>

ssize_t process_vm_readv(pid_t pid, const struct iovec* local, unsigned long to, const struct iovec* remote,
                         unsigned long from, unsigned long flags) {
  static int calls;
  if (++calls == 3) sleep(1000);
  ssize_t (*read)(pid_t, const struct iovec*, unsigned long, const struct iovec*, unsigned long, unsigned long) =
      dlsym(RTLD_NEXT, "process_vm_readv");
  return read(pid, local, to, remote, from, flags);
}
"""


def test_commands_end_where_a_read_does_not_return(spawn, tmp_path, venv_python):
    """A target that keeps the lock on its memory map is hard to make: here libc's function does not return."""
    library = tmp_path / "stuck.so"
    (tmp_path / "stuck.c").write_text(STUCK_READ)
    subprocess.run(["gcc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", library, tmp_path / "stuck.c"], check=True)
    target = spawn([venv_python, "-c", ORDINARY])
    running = [
        subprocess.Popen([support.BINARY, command, "-p", str(target.pid)], stdout=subprocess.DEVNULL,
                         stderr=subprocess.PIPE, text=True, env={**os.environ, "LD_PRELOAD": str(library)})
        for command in ("dump", "compiles", "doctor")
    ]  # fmt: skip
    for process in running:
        try:
            _, err = process.communicate(timeout=60)
        finally:
            process.kill()
        assert process.returncode == 1, err
        assert f"error: reading process {target.pid} does not return\n" in err
    assert target.alive()
