"""Hardware watchpoints are armed while Dynamo traces, and never else: an armed one slows page faults and
string instructions of its thread."""

import os
import re
import subprocess

import pytest

import samples
import support

pytestmark = pytest.mark.root_bpf

PROGRAM = support.REPO / "tests" / "programs" / "trace_and_train.py"
TOOL = support.BUILD / "tests" / "armed_registers"


def look(tid, seconds=2):
    """(samples of the thread, how many of them with a watchpoint armed)"""
    run = subprocess.run([TOOL, str(tid), str(seconds)], capture_output=True, text=True, timeout=60)
    if run.returncode == 77 and os.environ.get("CI") != "true":
        pytest.skip(run.stdout.strip())
    assert run.returncode == 0, run
    return tuple(int(n) for n in re.fullmatch(r"samples (\d+) armed (\d+)\n", run.stdout).groups())


def test_armed_while_dynamo_traces_and_never_else(dynprof, venv_python, tmp_path):
    target = support.spawn([venv_python, PROGRAM], timeout=180)
    try:
        run = dynprof.start("--pid", target.pid, "-F", 99, "-o", tmp_path / "out")
        samples.wait_until_sampling(run)
        target.send("trace")
        target.wait_for("^trace", timeout=120)
        tracing, armed_then = look(target.pid)
        target.send("lower")
        target.wait_for("^lower", timeout=120)
        lowering, armed_in_inductor = look(target.pid)
        target.send("train")
        target.wait_for("^train", timeout=120)
        training, armed_now = look(target.pid)
        run.signal(2)
        done = run.wait()
        target.send("end")
        assert target.wait() == 0, target.text
        assert done.rc == 0, done
    finally:
        target.kill()
    assert tracing > 100 and lowering > 100 and training > 100
    assert armed_then > tracing / 4, "nothing was armed: the second figure would say nothing"
    assert armed_in_inductor == 0
    assert armed_now == 0
