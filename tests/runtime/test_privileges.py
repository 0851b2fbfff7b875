"""Whose rights are in use when: files are made as the user who called sudo, and what was recorded is
processed without root's rights. Being called by sudo is its environment, SUDO_UID and SUDO_GID."""

import contextlib
import fcntl
import json
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

import support

pytestmark = pytest.mark.root_bpf

UID = 23456  # no entry in /etc/passwd
SUDO = {"SUDO_UID": str(UID), "SUDO_GID": str(UID)}
NOBODY = 65534
BUSY = "print('ready', flush=True)\nwhile True: sum(range(1000))"


@pytest.fixture
def home():
    """A directory of the user's, in a place that user can reach (pytest's own are root's)."""
    folder = Path(tempfile.mkdtemp(prefix="dynprof-test-"))
    os.chown(folder, UID, UID)
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def busy(spawn):
    return spawn([sys.executable, "-c", BUSY])


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A recording of root's, in a directory only root can reach."""
    folder = tmp_path_factory.mktemp("recorded")
    target = support.spawn([sys.executable, "-c", BUSY])
    dynprof = support.Dynprof(folder)
    try:
        out = folder / "out"
        done = dynprof.run("record", "-p", target.pid, "-d", "1", "-o", out)
        assert done.rc == 0, done
        return out
    finally:
        dynprof.close()
        target.kill()


def owners(folder):
    return {(p.lstat().st_uid, p.lstat().st_gid) for p in [folder, *folder.rglob("*")]}


def status_fields(text):
    return {k: v.split() for k, _, v in (line.partition(":") for line in text.splitlines())}


def has_no_rights(status, uid):
    assert status["Uid"] == [str(uid)] * 4, status
    assert status["Gid"] == [str(uid)] * 4, status
    for name in ("CapEff", "CapPrm", "CapInh", "CapAmb"):
        assert int(status[name][0], 16) == 0, f"{name} {status[name]}"
    assert status["NoNewPrivs"] == ["1"]


# ---- record --------------------------------------------------------------------------------------


@contextlib.contextmanager
def full_pipe():
    """A pipe that no byte fits into: who writes to it waits, and can be looked at."""
    read_end, write_end = os.pipe()
    fcntl.fcntl(write_end, fcntl.F_SETFL, os.O_NONBLOCK)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(write_end, b"x" * 4096)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(write_end, b"x")
    fcntl.fcntl(write_end, fcntl.F_SETFL, 0)
    try:
        yield read_end, write_end
    finally:
        os.close(read_end)
        os.close(write_end)


def children(pid):
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def state_of(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.parametrize("by_sudo", [True, False], ids=["sudo", "root"])
def test_outputs_are_made_without_rights(busy, home, by_sudo):
    out = home / "out"
    env = {k: v for k, v in os.environ.items() if not k.startswith("SUDO_")}
    with full_pipe() as (read_end, write_end):
        process = subprocess.Popen(
            [support.BINARY, "--pid", str(busy.pid), "-d", "1", "-o", out],
            stdout=write_end, stderr=subprocess.PIPE, text=True, env={**env, **(SUDO if by_sudo else {})},
        )
        try:
            # The report is printed after every file but none is left to write: it waits for the pipe.
            deadline = time.monotonic() + 60
            while not (out / "report.txt").exists() and process.poll() is None:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            time.sleep(0.3)
            assert process.poll() is None, process.stderr.read()
            writer = process.pid if by_sudo else children(process.pid)[0]
            status = status_fields(Path(f"/proc/{writer}/status").read_text())
            has_no_rights(status, UID if by_sudo else NOBODY)
            assert status["Groups"] == ([str(UID)] if by_sudo else [])
            assert status["Threads"] == ["1"]
            os.set_blocking(read_end, False)
            while process.poll() is None:
                with contextlib.suppress(BlockingIOError):
                    os.read(read_end, 65536)
                time.sleep(0.01)
                assert time.monotonic() < deadline
        finally:
            process.kill()
        assert process.wait() == 0, process.stderr.read()
    uid = UID if by_sudo else 0
    assert owners(out) == {(uid, uid)}
    for path in [out, *out.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)


def test_a_plain_root_that_is_stopped_gets_its_directory_back(busy, home):
    """Two signals to the process that waits end the one that makes the outputs; no file keeps the other owner."""
    out = home / "out"
    with full_pipe() as (_, write_end):
        process = subprocess.Popen(
            [support.BINARY, "--pid", str(busy.pid), "-d", "1", "-o", out],
            stdout=write_end, stderr=subprocess.PIPE, text=True,
        )
        try:
            deadline = time.monotonic() + 60
            while not (out / "report.txt").exists() and process.poll() is None:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            time.sleep(0.3)
            process.send_signal(signal.SIGINT)
            process.send_signal(signal.SIGTERM)  # at once: of two equal ones one may be lost
            stopped = (128 + signal.SIGINT, 128 + signal.SIGTERM)
            assert process.wait(20) in stopped, process.stderr.read()
        finally:
            process.kill()
    assert owners(out) == {(0, 0)}


def test_a_place_the_user_may_not_write_to(dynprof, busy, tmp_path):
    """tmp_path is root's: sudo must not help to write there."""
    tmp_path.chmod(0o755)
    done = dynprof.run("record", "-p", busy.pid, "-d", "1", "-o", tmp_path / "out", env=SUDO)
    assert done.rc == 1, done
    assert f"cannot create directory {tmp_path}/out: Permission denied" in done.err
    assert f"created as uid {UID}" in done.err
    assert not (tmp_path / "out").exists()
    assert busy.alive()


def test_a_group_may_write(dynprof, busy, home):
    """The group of SUDO_GID counts, as it does for the user."""
    shared = home / "shared"
    shared.mkdir()
    os.chown(shared, 0, UID)
    shared.chmod(0o770)
    done = dynprof.run("record", "-p", busy.pid, "-d", "1", "-o", shared / "out", env=SUDO)
    assert done.rc == 0, done
    assert owners(shared / "out") == {(UID, UID)}


def test_a_command_keeps_the_users_groups(home, tmp_path):
    """`record -- CMD` runs as the user with all groups a login has, as read from /etc/group."""
    if not shutil.which("unshare"):
        pytest.skip("no unshare")
    entry = pwd.getpwuid(NOBODY)
    group_file = tmp_path / "group"
    group_file.write_text(
        Path("/etc/group").read_text()
        + f"dynprof1:x:34561:{entry.pw_name}\ndynprof2:x:34562:root,{entry.pw_name}\n"
    )
    os.chown(home, NOBODY, entry.pw_gid)
    command = 'mount --bind "$0" /etc/group || exit 77; exec "$@"'
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", command, group_file, support.BINARY, "record", "-q",
         "-o", home / "out", "--", "id", "-G"],
        capture_output=True, text=True, timeout=60,
        env={**os.environ, "SUDO_UID": str(NOBODY), "SUDO_GID": str(entry.pw_gid),
             "SUDO_USER": entry.pw_name},
    )
    if done.returncode == 77:
        pytest.skip(f"no bind mount: {done.stderr}")
    assert done.returncode == 0, done
    assert set(done.stdout.split()) == {str(entry.pw_gid), "34561", "34562"}, done


# ---- report and export ---------------------------------------------------------------------------


@pytest.fixture
def shows_its_caller(home):
    """In PATH as dot: the picture is the state of the process that wanted it."""
    tools = home / "tools"
    tools.mkdir()
    (tools / "dot").write_text("#!/bin/sh\ncat /proc/$PPID/status\n")
    (tools / "dot").chmod(0o755)
    return {"PATH": f"{tools}:{os.environ['PATH']}"}


@pytest.mark.parametrize("by_sudo", [True, False], ids=["sudo", "root"])
def test_export_has_no_rights(dynprof, recorded, home, shows_its_caller, by_sudo):
    out = home / "picture.svg"
    env = {**shows_its_caller, **(SUDO if by_sudo else {})}
    done = dynprof.run("export", recorded, "-f", "svg", "-o", out, env=env)
    assert done.rc == 0, done
    has_no_rights(status_fields(out.read_text()), UID if by_sudo else NOBODY)
    assert out.stat().st_uid == (UID if by_sudo else 0)
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    to_stdout = dynprof.run("export", recorded, "-f", "svg", "-o", "-", env=env)
    has_no_rights(status_fields(to_stdout.out), UID if by_sudo else NOBODY)


def test_export_where_the_user_may_not_write(dynprof, recorded, tmp_path):
    tmp_path.chmod(0o755)
    out = tmp_path / "trace.json"
    done = dynprof.run("export", recorded, "-f", "chrome", "-o", out, env=SUDO)
    assert done.rc == 1, done
    assert f"cannot create {out}: Permission denied" in done.err
    assert f"uid {UID}" in done.err and "hint: " in done.err
    assert not out.exists()
    assert dynprof.run("export", recorded, "-f", "chrome", "-o", out).rc == 0  # root may
    json.loads(out.read_text())
    assert out.stat().st_uid == 0
    kept = out.read_bytes()
    again = dynprof.run("export", recorded, "-f", "chrome", "-o", out)
    assert again.rc == 1 and "nothing is overwritten" in again.err, again
    assert out.read_bytes() == kept


def test_a_failed_export_of_roots_leaves_no_file(dynprof, recorded, tmp_path):
    out = tmp_path / "x.json"
    done = dynprof.run("export", recorded, "-f", "json", "--compile", "77/0", "-o", out)
    assert done.rc != 0, done
    assert not out.exists()


@pytest.mark.parametrize("env", [SUDO, {}], ids=["sudo", "root"])
def test_report_reads_what_root_may_read(dynprof, recorded, env):
    """Opened before the rights are given up, as who types sudo expects."""
    done = dynprof.run("report", recorded, env=env)
    assert done.rc == 0 and "# Samples:" in done.out, done
    assert done.err == ""


def test_symbols_in_a_directory_of_roots(dynprof, recorded, tmp_path):
    """A plain root's symbol files are read as before, by a process that may read and nothing else."""
    symbols = tmp_path / "symbols"
    symbols.mkdir(mode=0o700)
    python = Path(sys.executable).resolve()
    shutil.copy(python, symbols / python.name)
    (symbols / python.name).chmod(0o600)
    done = dynprof.run("report", recorded, "--symbols", symbols)
    assert done.rc == 0, done
    assert "named from" in done.err and "Permission denied" not in done.err, done


def test_root_that_cannot_change_users_says_so(recorded):
    """In a container without CAP_SETUID root gives up what it has, and goes on."""
    if not shutil.which("setpriv"):
        pytest.skip("no setpriv")
    done = subprocess.run(
        ["setpriv", "--bounding-set=-setuid,-setgid", support.BINARY, "report", recorded],
        capture_output=True, text=True, timeout=60,
    )
    assert done.returncode == 0, done
    assert "note: CAP_SETUID or CAP_SETGID is missing" in done.stderr
