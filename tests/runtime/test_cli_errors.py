"""Bad input and failure at the command line: every refusal is `error: …` and `hint: …` on stderr with
exit status 1 (run time) or 2 (usage), nothing on stdout but data, and the target never notices."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

import support

# Prints a tick ten times a second: a target that was stopped or harmed falls silent. It ends at a line on stdin.
BUSY = """
import select, sys, time
def own_work(n):
    total = 0
    for i in range(n):
        total += i * i
    return total
print("ready", flush=True)
ticks, last = 0, time.monotonic()
while not select.select([sys.stdin], [], [], 0)[0]:
    own_work(2000)
    if time.monotonic() - last > 0.1:
        ticks, last = ticks + 1, time.monotonic()
        print("tick", ticks, flush=True)
"""


def busy(spawn, python=sys.executable):
    return spawn([python, "-c", BUSY])


def refused(result, status, *words):
    """The shape of every refusal, and that it speaks of what was asked."""
    assert result.rc == status, result
    assert re.search(r"^error: \S", result.err, re.M), result
    assert re.search(r"^hint: \S", result.err, re.M), result
    for word in words:
        assert re.search(word, result.err, re.I), f"nothing about {word!r}\n{result}"
    assert "Traceback" not in result.err and "terminate called" not in result.err


def still_ticks(target):
    at = len(target.lines)
    target.wait_for("tick", 5)
    deadline = time.monotonic() + 5
    while len(target.lines) <= at + 2:
        assert target.alive() and time.monotonic() < deadline, target.text[-300:]
        time.sleep(0.05)


def free_pid():
    child = subprocess.Popen(["true"])
    child.wait()
    return child.pid


def wait_for_growth(recording, beyond, timeout=30):
    """Waits until the recording holds more than `beyond` bytes: it is written while sampling."""
    deadline = time.monotonic() + timeout
    while not recording.exists() or recording.stat().st_size <= beyond:
        assert time.monotonic() < deadline, f"{recording} did not grow beyond {beyond} bytes"
        time.sleep(0.05)


# ---- usage ---------------------------------------------------------------------------------------


def test_no_arguments_prints_help_and_exits_2(dynprof):
    result = dynprof.run()
    assert result.rc == 2, result
    assert "--pid" in result.out and "report" in result.out


def test_help_and_version_exit_0(dynprof):
    for args in (["--help"], ["record", "--help"], ["report", "--help"], ["export", "-h"]):
        result = dynprof.run(*args)
        assert result.rc == 0 and result.out and not result.err, result
    result = dynprof.run("--version")
    assert result.rc == 0 and re.match(r"dynprof-bpf \d+\.\d+", result.out), result


@pytest.mark.parametrize(
    "args, words",
    [
        (["repport", "x"], ["repport", r"\breport\b"]),
        (["recrd", "-p", "1"], ["recrd", r"\brecord\b"]),
        (["--frequancy", "99", "--pid", "1"], ["frequancy", "--frequency"]),
        (["report", "x", "--fase", "dynamo"], ["fase", "--phase"]),
        (["--pid", "abc"], ["abc"]),
        (["--pid", "0"], ["0"]),
        (["--pid=-5"], ["-5"]),
        (["--pid", "99999999999999999999"], ["99999999999999999999"]),
        (["--pid", "1,,2"], ["process id"]),
        (["--pid"], ["pid"]),
        (["--pid", "1", "-F", "0"], ["frequency", "0"]),
        (["--pid", "1", "-F", "fast"], ["fast"]),
        (["--pid", "1", "-d", "soon"], ["soon"]),
        (["--pid", "1", "-d", "0"], ["duration"]),
        (["--pid", "1", "-d", "-3"], ["-3"]),
        (["record"], ["record"]),
        (["record", "--pid", "1", "--", "true"], ["--pid"]),
        (["report"], ["dir"]),
        (["export", "x", "-f", "nonsense", "-o", "y"], ["nonsense"]),
        (["export", "x", "-o", "y"], ["format"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_wrong_usage(dynprof, tmp_path, args, words):
    result = dynprof.run(*args, cwd=tmp_path)
    refused(result, 2, *words)
    assert not list(tmp_path.iterdir()), "wrong usage left something behind"


def test_frequency_above_the_kernels_maximum(dynprof, tmp_path):
    limit = int(Path("/proc/sys/kernel/perf_event_max_sample_rate").read_text())
    result = dynprof.run("--pid", os.getpid(), "-F", limit + 1, cwd=tmp_path)
    refused(result, 2, str(limit + 1), f"{limit}\\b", "perf_event_max_sample_rate")
    assert not list(tmp_path.iterdir())


# ---- processes one cannot attach to --------------------------------------------------------------


@pytest.mark.root_bpf
def test_no_such_pid(dynprof, tmp_path):
    pid = free_pid()
    refused(dynprof.run("--pid", pid, cwd=tmp_path), 1, rf"\b{pid}\b", "no process|no such process")
    assert not list(tmp_path.iterdir()), "a refused attach left a directory behind"


@pytest.mark.root_bpf
def test_kernel_thread(dynprof, tmp_path):
    comm = Path("/proc/2/comm")
    if not comm.exists() or comm.read_text().strip() != "kthreadd":
        pytest.skip("process 2 is not kthreadd: not the host's pid namespace")
    refused(dynprof.run("--pid", 2, cwd=tmp_path), 1, r"\b2\b", "kernel thread")
    assert not list(tmp_path.iterdir())


@pytest.mark.root_bpf
def test_zombie(dynprof, tmp_path):
    child = subprocess.Popen(["true"])
    try:
        deadline = time.monotonic() + 10
        while ") Z " not in Path(f"/proc/{child.pid}/stat").read_text():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        refused(dynprof.run("--pid", child.pid, cwd=tmp_path), 1, str(child.pid), "zombie|ended|exited")
    finally:
        child.wait()
    assert not list(tmp_path.iterdir())


@pytest.mark.root_bpf
def test_process_that_is_not_python(dynprof, spawn, tmp_path):
    target = spawn(["sh", "-c", "echo ready; exec sleep 60"])
    time.sleep(0.2)
    result = dynprof.run("--pid", target.pid, "-d", "1", cwd=tmp_path)
    refused(result, 1, str(target.pid), "python")
    assert target.alive()


@pytest.mark.root_bpf
@pytest.mark.pythons("3.8", "3.9")
def test_unsupported_python_is_named_and_recorded_natively(dynprof, spawn, interpreter, tmp_path):
    target = busy(spawn, interpreter.path)
    result = dynprof.run("--pid", target.pid, "-d", "2", "-F", "499", "-o", tmp_path / "out")
    assert result.rc == 0, result
    version = ".".join(map(str, interpreter.minor))
    assert re.search(rf"{re.escape(version)}\b.*not supported|unsupported.*{re.escape(version)}\b",
                     result.err), result
    assert "own_work" not in result.out, f"a Python name without a way to read it\n{result}"
    still_ticks(target)


def test_ordinary_user_is_told_what_is_missing(spawn, tmp_path):
    # A copy in a folder anybody may enter: the build may lie under a private home.
    folder = Path(tempfile.mkdtemp(prefix="dynprof-test-"))
    try:
        folder.chmod(0o755)
        program = folder / "dynprof-bpf"
        shutil.copy(support.BINARY, program)
        program.chmod(0o755)
        user = "nobody" if os.geteuid() == 0 else None
        target = spawn([sys.executable if user is None else "/bin/sh", "-c",
                        BUSY if user is None else "echo ready; sleep 60"], user=user, cwd="/")
        as_user = support.Dynprof(tmp_path, program)
        result = as_user.run("--pid", target.pid, "-F", "199", user=user, cwd="/")
        refused(result, 1, "CAP_BPF", "CAP_PERFMON", "CAP_SYS_PTRACE")
        # The hint is the command that was typed, ready to be pasted.
        hint = re.search(r"^hint: .*$", result.err, re.M).group()
        assert re.search(rf"sudo \S*dynprof-bpf .*--pid {target.pid}\b", hint), result
        assert "199" in hint, result
    finally:
        shutil.rmtree(folder)


# ---- where the output goes -----------------------------------------------------------------------


@pytest.mark.root_bpf
def test_output_directory_exists(dynprof, spawn, tmp_path):
    target = busy(spawn)
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "recording.dynprof").write_text("mine")
    refused(dynprof.run("--pid", target.pid, "-d", "1", "-o", kept), 1, "kept", "exist")
    assert [p.name for p in kept.iterdir()] == ["recording.dynprof"]
    assert (kept / "recording.dynprof").read_text() == "mine"
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "nowhere")
    refused(dynprof.run("--pid", target.pid, "-d", "1", "-o", link), 1, "link", "exist")
    assert not (tmp_path / "nowhere").exists(), "a dangling link was followed"


@pytest.mark.root_bpf
def test_output_directory_in_no_directory(dynprof, spawn, tmp_path):
    target = busy(spawn)
    result = dynprof.run("--pid", target.pid, "-d", "1", "-o", tmp_path / "no" / "such" / "out")
    refused(result, 1, "no/such/out")


# Every sample another stack: the recording cannot shrink to nothing.
VARIED = BUSY.replace("def own_work", """
import random
def descend(depth):
    if depth == 0:
        return own_work(3000)
    return random.choice(ways)(depth)
ways = [eval(f"lambda depth: descend(depth - 1) + {i}") for i in range(9)]
def own_work""").replace("    own_work(2000)", "    descend(12)")


@pytest.mark.root_bpf
@pytest.mark.parametrize("size, during", [("32k", "recording"), ("20k", "outputs")])
def test_disk_full(dynprof, spawn, tmp_path, size, during):
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(small)],
                             capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount a tmpfs: {mounted.stderr.strip()}")
    try:
        target = spawn([sys.executable, "-c", VARIED if during == "recording" else BUSY])
        seconds = 30 if during == "recording" else 3
        result = dynprof.run("--pid", target.pid, "-F", "999", "-d", seconds, "-o", small / "out")
        refused(result, 1, "No space left")
        if during == "recording":
            assert result.seconds < seconds, f"went on though nothing could be written\n{result}"
        still_ticks(target)
        report = dynprof.run("report", small / "out")
        assert report.rc == 0 and "own_work" in report.out, f"what fitted is not readable\n{report}"
    finally:
        dynprof.close()
        subprocess.run(["umount", str(small)], check=True)


# ---- unplanned ends --------------------------------------------------------------------


@pytest.mark.root_bpf
@pytest.mark.parametrize("how", ["SIGKILL", "SIGTERM", "exit"])
def test_target_ends_midway(dynprof, spawn, tmp_path, how):
    target = busy(spawn)
    run = dynprof.start("--pid", target.pid, "-F", "499", "-o", tmp_path / "out")
    wait_for_growth(tmp_path / "out" / "recording.dynprof", 0)
    time.sleep(2)
    if how == "exit":
        target.send("end")
    else:
        target.signal(getattr(signal, how))
    result = run.wait(60)
    assert result.rc == 0, result
    assert "own_work" in result.out, result
    for name in ("recording.dynprof", "report.txt", "compiles.json", "trace.json.gz"):
        assert (tmp_path / "out" / name).stat().st_size > 0, result


@pytest.mark.root_bpf
def test_target_execs_another_python(dynprof, spawn, tmp_path):
    after = BUSY.replace("own_work", "afterwards").replace("ready", "replaced")
    before = BUSY.replace("own_work", "earlier")
    before += f"sys.stdin.readline()\nimport os\nos.execv(sys.executable, [sys.executable, '-u', '-c', {after!r}])"
    target = spawn([sys.executable, "-c", before])
    run = dynprof.start("--pid", target.pid, "-F", "499", "-o", tmp_path / "out")
    wait_for_growth(tmp_path / "out" / "recording.dynprof", 0)
    time.sleep(2)
    target.send("exec")
    target.wait_for("^replaced")
    time.sleep(2)
    target.send("end")
    result = run.wait(60)
    assert result.rc == 0, result
    assert "earlier" in result.out and "afterwards" in result.out, result


@pytest.mark.root_bpf
def test_we_are_killed_and_the_recording_is_readable(dynprof, spawn, tmp_path):
    target = busy(spawn)
    run = dynprof.start("--pid", target.pid, "-F", "999", "-o", tmp_path / "out")
    recording = tmp_path / "out" / "recording.dynprof"
    wait_for_growth(recording, 0)
    time.sleep(3)
    run.kill()
    still_ticks(target)
    report = dynprof.run("report", tmp_path / "out")
    assert report.rc == 0, report
    assert "own_work" in report.out, report
    assert re.search("no end mark", report.out), f"does not say that the end is missing\n{report}"


@pytest.mark.root_bpf
def test_ctrl_c_ends_with_0_and_a_report(dynprof, spawn, tmp_path):
    target = busy(spawn)
    run = dynprof.start("--pid", target.pid, "-F", "499", "-o", tmp_path / "out")
    wait_for_growth(tmp_path / "out" / "recording.dynprof", 0)
    time.sleep(2)
    run.interrupt()
    result = run.wait(60)
    assert result.rc == 0 and "own_work" in result.out, result
    assert (tmp_path / "out" / "report.txt").exists()
    still_ticks(target)


@pytest.mark.root_bpf
def test_second_ctrl_c_ends_at_once_and_loses_no_sample(dynprof, spawn, tmp_path):
    target = busy(spawn)
    run = dynprof.start("--pid", target.pid, "-F", "999", "-o", tmp_path / "out")
    recording = tmp_path / "out" / "recording.dynprof"
    wait_for_growth(recording, 0)
    time.sleep(3)
    run.interrupt()
    time.sleep(0.01)
    run.interrupt()
    result = run.wait(20)
    # 0: it was done before the second came; 130: the shell's number for an interrupted program.
    assert result.rc in (0, 1, 130, -signal.SIGINT), result
    report = dynprof.run("report", tmp_path / "out")
    assert report.rc == 0 and "own_work" in report.out, report
    still_ticks(target)


@pytest.mark.root_bpf
def test_status_of_the_command_is_passed_on(dynprof, tmp_path):
    code = "import time, sys; t = time.time()\nwhile time.time() < t + 1: pass\nsys.exit(7)"
    result = dynprof.run("record", "-o", tmp_path / "out", "--", sys.executable, "-c", code)
    assert result.rc == 7, result
    assert (tmp_path / "out" / "recording.dynprof").exists()


@pytest.mark.root_bpf
def test_command_that_does_not_exist(dynprof, tmp_path):
    result = dynprof.run("record", "-o", tmp_path / "out", "--", "/no/such/program")
    refused(result, 1, "/no/such/program")
