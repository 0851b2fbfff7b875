"""The functions of `top`: their CPU time and waits against what the target itself counts, as text and on a terminal."""

import json
import re
import subprocess
import time

import pytest

import support
from tmux_terminal import SIZES, begin_top, wait_until

pytestmark = pytest.mark.root_bpf

PROGRAM = support.REPO / "tests" / "programs" / "hot_functions.py"
NUMBER = r"(\d+\.\d+)"


def rows_of(text):
    """{function: (user, [eight numbers])} of the table."""
    rows = {}
    for found in re.finditer(rf"(?m)^(\S+) (\S+:\d+) +(user|-) +(?:-|\d\S*(?: \+\d+)?)((?: +{NUMBER}){{8}}) *$", text):
        rows[found.group(1)] = found.group(3) == "user", [float(word) for word in found.group(4).split()]
    return rows


def times(target, when):
    target.send(when)
    return json.loads(target.wait_for(rf"^{when} (.*)").group(1))


@pytest.fixture
def target(spawn, venv_python):
    return spawn([venv_python, PROGRAM])


def test_times_are_those_of_the_target(dynprof, target):
    run = dynprof.start("top", "-p", target.pid, "--batch", "--functions", "-n", 14)
    wait_until(lambda: "Sampled 99 times a second" in run.out, "the first samples")
    begin, before = time.monotonic(), times(target, "begin")
    done = run.wait()
    after, passed = times(target, "end"), time.monotonic() - begin
    assert done.rc == 0 and done.err == "" and "warning" not in done.out, done
    rows = rows_of(done.out[done.out.rindex("Process ") :])
    nothing = True, [0.0] * 8
    at_begin = rows_of(done.out[: done.out.index("Process ", done.out.index("Sampled "))])
    user, (cpu_self, _, _, _, cpu_self_s, cpu_all_s, _, _) = rows["burn"]
    burn = after["burn"] - before["burn"]
    assert user and cpu_all_s == pytest.approx(cpu_self_s, abs=0.1)
    assert cpu_self_s - at_begin.get("burn", nothing)[1][4] == pytest.approx(burn, rel=0.25, abs=0.3)
    assert 50 * burn / passed < cpu_self < 200 * burn / passed
    user, (cpu_self, cpu_all, _, _, _, cpu_all_s, _, _) = rows["call_burn"]
    assert user and cpu_self < cpu_all / 2 and cpu_all_s >= 0.9 * rows["burn"][1][5]
    # time.sleep is no Python function: its caller itself waits. It also waits for a CPU, which does not count.
    user, (_, _, wait_self, _, _, _, wait_self_s, _) = rows["wait_often"]
    waited = after["wait_often"] - before["wait_often"]
    assert user and 70 < wait_self < 110
    assert wait_self_s - at_begin.get("wait_often", nothing)[1][6] == pytest.approx(waited, rel=0.25, abs=0.5)
    # One that goes on counts up to now.
    user, (_, _, wait_self, wait_all, _, _, _, wait_all_s) = rows["wait_once"]
    assert user and wait_self < 1 and wait_all > 70 and wait_all_s > 5
    assert not rows["Condition.wait"][0] and rows["Condition.wait"][1][2] > 70


def test_compiled_functions_are_told_by_their_newest_compile(dynprof, venv_python, tmp_path):
    job = support.spawn([venv_python, support.REPO / "tests" / "programs" / "steady_job.py", tmp_path / "truth.json",
                         "--fast", "8"], timeout=180, env={"TMPDIR": str(tmp_path)})
    try:
        job.wait_for("^ready", timeout=120)
        run = dynprof.start("top", "-p", job.pid, "--batch", "--functions", "-n", 11)
        wait_until(lambda: "Sampled 99 times a second" in run.out, "the first samples")
        job.send("go")
        job.wait_for("^batch", timeout=60)
        done = run.wait()
        job.wait_for("^done", timeout=60)
    finally:
        job.kill()
    assert done.rc == 0, done
    text = done.out[done.out.rindex("\nCompiled functions by CPU all %\n") :]
    rows = {name: row for name, row in rows_of(text).items() if " 0/0 " in re.search(rf"(?m)^{name} .*$", text)[0]}
    assert set(rows_of(text)) == set(rows) == {"small"}
    user, (_, cpu_all, _, _, _, cpu_all_s, _, _) = rows["small"]
    calls_s = json.loads((tmp_path / "truth.json").read_text())["batches"][0]["cpu_s"]
    # The search for compiled code, before each call, is not in the function.
    assert user and 0.2 * calls_s < cpu_all_s < 1.1 * calls_s
    assert cpu_all > 10


def test_without_it_nothing_is_sampled(dynprof, target):
    done = dynprof.run("top", "-p", target.pid, "--batch", "-n", 2, "-d", "500ms")
    assert done.rc == 0 and "Sampl" not in done.out


def test_without_rights_it_says_so(dynprof):
    """CAP_SYS_PTRACE alone reads the process; sampling it takes more."""
    target = support.spawn(["/usr/bin/python3", "-S", PROGRAM])
    try:
        top = [support.BINARY, "top", "-p", str(target.pid), "--batch", "--functions", "-n", "2"]
        done = subprocess.run(
            ["setpriv", "--bounding-set", "-all,+sys_ptrace,+dac_read_search", *top], capture_output=True, text=True
        )
    finally:
        target.kill()
    assert done.returncode == 0, done
    assert "warning: functions are not sampled: missing CAP_BPF" in done.stdout, done


@pytest.mark.parametrize("columns,rows", SIZES)
def test_on_a_terminal(terminal, target, columns, rows):
    screen = terminal(columns, rows)
    begin_top(screen, target.pid)
    screen.wait_for(r"^torch is not imported|^No compile")
    screen.type("t")
    shown = screen.wait_for(r"^burn hot_fu.* \d\d\.\d ")
    lines = shown.rstrip("\n").split("\n")
    assert len(lines) <= rows and max(map(len, lines)) <= columns
    assert re.search(r"^Function +(Code +)?(Compiled +)?CPU self % ", shown, re.M)
    assert shown.partition("\nFunction ")[2].split("\n")[1].startswith("burn ")
    screen.type("ss")
    screen.wait_for(r"^(Condition\.w|wait_often|wait_once)")
    screen.type("q")
    screen.wait_for("^rc 0$")
