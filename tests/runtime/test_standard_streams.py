"""Output that cannot be written: a reader that is gone, a full disk, a closed descriptor. The recording is
finished all the same, and the status says what happened; nothing aborts."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest

import support

BUSY = """
import sys
def own_work(n):
    return sum(i * i for i in range(n))
print("ready", flush=True)
while True:
    own_work(2000)
"""


def run_in_shell(command, timeout=60):
    """The status of `command` with $D as the program, and what came out of the shell."""
    done = subprocess.run(["sh", "-c", command], env={**os.environ, "D": str(support.BINARY)},
                          capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout + done.stderr


def is_complete(out):
    """All files are there, and the recording has its end mark and the names of functions."""
    for name in ("recording.dynprof", "report.txt", "compiles.json", "trace.json.gz"):
        assert (out / name).stat().st_size > 0, name
    assert not [p for p in os.listdir(out) if not re.match(r"[a-z.]+$", p)]
    report = subprocess.run([support.BINARY, "report", out], capture_output=True, text=True)
    assert report.returncode == 0, report
    assert "own_work" in report.stdout and "no end mark" not in report.stderr, report


# The status of the first part of a pipe is written to $S.
@pytest.mark.root_bpf
@pytest.mark.parametrize(
    "how, status",
    [
        ("({verbless}; echo $? > $S) 2>&1 | head -1", 1),  # `head` ends in the middle of the recording
        ("({record}; echo $? > $S) 2>&1 | head -1", 0),
        ("{record} 2>&-; echo $? > $S", 0),
        ("{record} >&- 2>&- <&-; echo $? > $S", 0),
        ("{record} 2> /dev/full; echo $? > $S", 0),
        ("{verbless} > /dev/full; echo $? > $S", 1),
        ("{verbless} >&-; echo $? > $S", 1),
    ],
)
def test_a_recording_is_finished_whatever_becomes_of_its_output(spawn, tmp_path, how, status):
    target = spawn([sys.executable, "-c", BUSY])
    out, said = tmp_path / "out", tmp_path / "status"
    options = f"-F 499 -d 2 -o {out} --pid {target.pid}"
    _, text = run_in_shell(f"S={said}; " + how.format(record=f"$D record {options}",
                                                      verbless=f"$D {options}"))
    assert said.read_text().strip() == str(status), text
    is_complete(out)
    if status == 1 and "head" not in how:
        assert re.search(r"^error: cannot write to stdout: ", text, re.M), text
        assert re.search(rf"^hint: .*{out}/report.txt", text, re.M), text
    assert target.alive()


@pytest.fixture(scope="module")
def recording(require_root_bpf, tmp_path_factory):
    folder = tmp_path_factory.mktemp("streams")
    target = support.spawn([sys.executable, "-c", BUSY])
    dynprof = support.Dynprof(folder)
    try:
        done = dynprof.run("record", "-F", "499", "-d", "1", "-o", folder / "out", "-p", target.pid)
        assert done.rc == 0, done
    finally:
        dynprof.close()
        target.kill()
    return folder / "out"


@pytest.mark.root_bpf
@pytest.mark.parametrize("sink, why", [("> /dev/full", "No space left on device"),
                                       (">&-", "Bad file descriptor")])
@pytest.mark.parametrize("verb", ["report {out}", "export {out} -f folded -o -",
                                  "export {out} -f chrome -o -", "--help", "record --help",
                                  "--version"])
def test_stdout_that_takes_nothing(recording, verb, sink, why):
    status, text = run_in_shell(f"$D {verb.format(out=recording)} {sink}")
    assert status == 1, text
    assert re.search(rf"^error: cannot write (to )?stdout: {why}", text, re.M), text


@pytest.mark.root_bpf
def test_a_reader_that_ends(recording):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([support.BINARY, "report", recording], stdout=writer,
                          stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert done.returncode == 1, done
    assert "error: cannot write to stdout: Broken pipe" in done.stderr


@pytest.mark.root_bpf
@pytest.mark.parametrize("verb", ["dump", "compiles"])
def test_looks_at_a_process_without_stdout(spawn, verb):
    target = spawn([sys.executable, "-c", BUSY])
    status, text = run_in_shell(f"$D {verb} -p {target.pid} --json > /dev/full")
    assert status == 1 and re.search("^error: ", text, re.M), text


@pytest.mark.root_bpf
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_that_end_a_recording_in_good_order(dynprof, spawn, tmp_path, number):
    target = spawn([sys.executable, "-c", BUSY])
    # Tests that run under nohup themselves would hand on that SIGHUP is ignored.
    before = signal.signal(number, signal.SIG_DFL)
    try:
        run = dynprof.start("record", "-F", "499", "-p", target.pid, "-o", tmp_path / "out")
    finally:
        signal.signal(number, before)
    run.wait_for_err("Sampling")
    time.sleep(1.5)
    run.signal(number)
    result = run.wait(60)
    assert result.rc == 0 and "interrupted" in result.err, result
    is_complete(tmp_path / "out")


@pytest.mark.root_bpf
def test_nohup(dynprof, spawn, tmp_path):
    """Under nohup the terminal goes and the recording goes on."""
    target = spawn([sys.executable, "-c", BUSY])
    out = tmp_path / "out"
    run = support.Running(["nohup", support.BINARY, "record", "-F", "499", "-d", "3", "-p", target.pid,
                           "-o", out], tmp_path)
    try:
        run.wait_for_err("Sampling")
        run.signal(signal.SIGHUP)
        result = run.wait(60)
    finally:
        run.kill()
    assert result.rc == 0 and "duration" in result.err, result
    is_complete(out)
