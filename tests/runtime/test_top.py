"""`top`: as text on compiles that stand still at known places, and on terminals of three sizes through tmux."""

import json
import os
import re
import signal
import time

import pytest

import support
from tmux_terminal import PROMPT, SIZES, begin_top, wait_until

PROGRAMS = support.REPO / "tests" / "programs"
STUCK = PROGRAMS / "stuck_compile.py"
COLUMNS = 160  # of text for a pipe
STALL_S = 30  # from then on a compile that does not advance is reported


def line_of(text):
    lines = STUCK.read_text().splitlines()
    return 1 + next(i for i, line in enumerate(lines) if line.strip() == text)


def one_line(text):
    return re.sub(r"\s+", " ", text)


def seconds_of(age):
    """12.3 s, 3:05, 2:03:00."""
    if age.endswith(" s"):
        return float(age[:-2])
    total = 0
    for part in age.split(":"):
        total = 60 * total + int(part)
    return float(total)


@pytest.fixture(scope="module")
def waiting(venv_python):
    """One thread stands still in its compile and holds the lock that another one wants."""
    target = support.spawn([venv_python, STUCK, "waiting"], ready=None, timeout=180)
    try:
        truth = json.loads(target.wait_for(r"^at waiting (.*)", timeout=180).group(1))
        yield target, truth
    finally:
        target.kill()


def batch(dynprof, pid, *options):
    done = dynprof.run("top", "--pid", pid, "--batch", *options, timeout=180)
    assert done.rc == 0 and done.err == "", done
    assert max(map(len, done.out.splitlines())) <= COLUMNS
    assert "\x1b" not in done.out
    return [f"Process {pid}:" + part for part in done.out.split(f"Process {pid}:")[1:]]


# ---- text ----------------------------------------------------------------------------------------


def test_a_compile_that_stands_still(dynprof, waiting):
    target, truth = waiting
    begun = time.time_ns()
    first, last = batch(dynprof, target.pid, "-n", 2, "-d", f"{STALL_S + 1}s")
    ended = time.time_ns()
    place = f"plain stuck_compile.py:{line_of('return x * 2')}"
    function = f"plain stuck_compile.py:{line_of('def plain(x):')}"
    for text in (first, last):
        assert "Compiles: 1 open, 1 thread waiting for the compile lock, 0 finished" in text
        row = next(line for line in text.splitlines() if line.startswith("0/0  "))
        assert re.match(rf"0/0 +{re.escape(function)} +backend +\S.* {truth['tid']} +{re.escape(place)} ", row)
        assert row.endswith("data from a pipe")
        lock = next(line for line in text.splitlines() if line.startswith("(waits) "))
        assert re.search(rf"the compile lock, held by thread {truth['tid']} for 0/0$", lock)
        age = seconds_of(re.search(rf" backend +(\d\S*(?: s)?) +{truth['tid']} ", row).group(1))
        assert (begun - truth["start_ns"]) / 1e9 - 1.1 <= age <= (ended - truth["start_ns"]) / 1e9 + 0.1
    assert "has not advanced" not in first and "has waited" not in first
    said = one_line(last)
    assert re.search(
        rf"0/0 \({re.escape(function)}\) has not advanced for (\d\d\.\d s|\d min \d\d s): backend, compiling the"
        rf" graph that ends at {re.escape(place)}; thread {truth['tid']} \"MainThread\" waits for data from a pipe\.",
        said,
    ), last
    assert re.search(
        rf"thread \d+ \"second\" has waited for the compile lock, held by thread {truth['tid']} for 0/0 for ", said
    ), last


def test_the_node_that_is_lowered(dynprof, spawn, venv_python, tmp_path):
    cache = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    target = spawn([venv_python, STUCK, "lowering"], ready=None, env=cache)
    truth = json.loads(target.wait_for(r"^at lowering (.*)", timeout=180).group(1))
    (text,) = batch(dynprof, target.pid, "-n", 1)
    row = next(line for line in text.splitlines() if line.startswith("0/0 "))
    assert f" {truth['node']}/{truth['nodes']} " in row, text
    assert f"with_op stuck_compile.py:{line_of('return slow_op(x)')} " in row, text
    assert " inductor " in row, text


def test_compiles_that_have_finished(dynprof, spawn, venv_python):
    """The first place was left: its compile is among the finished ones, with its function and time."""
    target = spawn([venv_python, STUCK, "tracing", "backend"], ready=None)
    target.wait_for(r"^at tracing ", timeout=180)
    target.send("")
    target.wait_for(r"^at backend ", timeout=180)
    (text,) = batch(dynprof, target.pid, "-n", 1)
    head, _, rows = text.partition("\nId ")
    assert re.search(r"Compiles: 1 open, [1-9]\d* finished in \d+\.\d s", head)
    assert re.search(rf"^0/0 #1 +breaks stuck_compile\.py:{line_of('def breaks(block, x):')} .* s ", rows, re.M), text


def test_a_process_without_torch_and_with_children(dynprof, spawn, venv_python):
    code = (
        "import subprocess, time\n"
        "child = subprocess.Popen(['/bin/sleep', '600'])\n"
        "print('ready', child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    target = spawn([venv_python, "-c", code])
    child = int(target.wait_for(r"^ready (\d+)").group(1))
    first, second = batch(dynprof, target.pid, "-n", 2, "-d", "200ms")
    assert ", no torch;" in first and "torch is not imported." in first
    assert "No compile has finished." in first and "; 1 child process: " in first
    assert re.search(rf"^ *{child} +- .* sleep", first, re.M), first
    assert re.search(rf"^ *{child} +0\.0 .* sleep", second, re.M), second


def test_the_process_ends(dynprof, spawn, venv_python):
    target = spawn([venv_python, "-c", "print('ready', flush=True); input()"])
    run = dynprof.start("top", "-p", target.pid, "-d", "100ms")  # stdout is no terminal
    wait_until(lambda: run.out.count("Process ") >= 2, "two readings")
    target.kill()
    done = run.wait()
    assert done.rc == 0 and done.err == f"process {target.pid} has ended\n", done


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_end_it(dynprof, spawn, venv_python, number):
    target = spawn([venv_python, "-c", "print('ready', flush=True); input()"])
    # Tests that run under nohup themselves would pass on that SIGHUP is ignored.
    before = signal.signal(number, signal.SIG_DFL)
    try:
        run = dynprof.start("top", "--batch", "-p", target.pid, "-d", "10m")
    finally:
        signal.signal(number, before)
    wait_until(lambda: "Process " in run.out, "the first reading")
    run.signal(number)
    done = run.wait()
    assert done.rc == 0 and done.err == "" and done.seconds < 300, done
    assert target.alive()


def test_two_thousand_threads(dynprof, spawn, venv_python):
    code = (
        "import threading, time\n"
        "threading.stack_size(65536)\n"
        "for _ in range(2000): threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)\n"
    )
    target = spawn([venv_python, "-c", code])
    *_, last = batch(dynprof, target.pid, "-n", 3)
    assert ", 2001 threads" in last
    assert "warning:" not in last


def refused(done, code):
    assert done.rc == code and done.out == "", done
    assert re.match(r"error: .+\nhint: .+\n$", done.err), done.err


def test_refusals(dynprof, spawn):
    refused(dynprof.run("top", "-p", 2**22 + 5), 1)
    refused(dynprof.run("top", "-p", spawn(["/bin/sleep", "60"], ready=None).pid), 1)
    refused(dynprof.run("top", "-p", f"{os.getpid()},1"), 2)
    refused(dynprof.run("top", "-p", os.getpid(), "-d", "1ms"), 2)
    refused(dynprof.run("top", "-p", os.getpid(), "-d", "soon"), 2)
    refused(dynprof.run("top", "-p", os.getpid(), "-n", "0"), 2)
    assert dynprof.run("top").rc == 2


# ---- on a terminal -------------------------------------------------------------------------------


def restored(screen, settings, status=0):
    screen.wait_for(rf"^rc {status}\n[#$]")
    assert screen.modes() == "011"
    screen.enter("clear; stty -g")
    screen.wait_for("^" + re.escape(settings) + PROMPT)


@pytest.mark.parametrize("columns,rows", SIZES)
def test_on_a_terminal(terminal, waiting, columns, rows):
    target, _ = waiting
    screen = terminal(columns, rows)
    settings = begin_top(screen, target.pid)
    shown = screen.wait_for(r"^0/0 ")
    assert screen.modes() == "100"
    lines = shown.rstrip("\n").split("\n")
    assert lines[0].startswith(f"Process {target.pid}: "[: columns - 1])
    assert len(lines) <= rows
    if rows >= 24:
        assert lines[1].startswith("Python 3.") and lines[rows - 1].startswith("q quit  h help")
    if columns >= 120:
        assert re.search(r"^\(waits\) .* the compile lock, held by ", shown, re.M)
    screen.type("f")
    screen.wait_for("^No compile has finished")
    screen.type("p")
    screen.wait_for("child processes")
    screen.type("h")
    screen.wait_for("^c        open compiles")
    screen.type("c")
    screen.wait_for(r"^0/0 ")
    screen.type("q")
    restored(screen, settings)
    drawn = screen.drawn()
    assert len(drawn) > 5
    assert max(map(len, drawn)) <= columns, max(drawn, key=len)


def test_a_new_size(terminal, waiting):
    target, _ = waiting
    screen = terminal(80, 24)
    settings = begin_top(screen, target.pid)
    screen.wait_for(r"^q quit  h help")
    for columns, rows in ((120, 40), (20, 5), (80, 24)):
        screen.tmux("resize-window", "-x", columns, "-y", rows)
        screen.wait_for(r"^q quit  h help" if rows > 5 else r"\A.*\n(.*\n)*0/0 ")
        lines = screen.screen().rstrip("\n").split("\n")
        assert len(lines) <= rows and lines[0].startswith("Process ")
    screen.type("q")
    restored(screen, settings)


def test_frozen(terminal, waiting):
    target, _ = waiting
    screen = terminal(80, 24)
    begin_top(screen, target.pid, "-d", "100ms")
    screen.wait_for(r"^0/0 ")
    screen.type(" ")
    frozen = screen.wait_for("^FROZEN")
    time.sleep(1)
    assert screen.screen() == frozen
    screen.type(" ")
    screen.wait_for(r"^q quit")
    screen.type("q")
    screen.wait_for("^rc 0$")


def test_every_way_out_restores_the_terminal(terminal, spawn, venv_python):
    target = spawn([venv_python, "-c", "print('ready', flush=True); input()"])
    screen = terminal(80, 24)
    for end in ("C-c", signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGSEGV, "target"):
        settings = begin_top(screen, target.pid)
        screen.wait_for(r"^q quit")
        if end == "target":
            target.kill()
        elif end == "C-c":
            screen.key("C-c")
        else:
            os.kill(screen.child(), end)
        restored(screen, settings, 128 + end if end == signal.SIGSEGV else 0)


def test_stopped_and_continued(terminal, spawn, venv_python):
    target = spawn([venv_python, "-c", "print('ready', flush=True); input()"])
    screen = terminal(80, 24)
    begin_top(screen, target.pid)
    screen.wait_for(r"^q quit")
    screen.key("C-z")
    wait_until(lambda: screen.modes() == "011", "the screen of the shell")
    screen.enter("fg")
    screen.wait_for(r"^q quit")
    assert screen.modes() == "100"
    screen.type("q")
    wait_until(lambda: screen.modes() == "011", "the screen of the shell again")


def test_a_dumb_terminal_gets_text(terminal, spawn, venv_python):
    target = spawn([venv_python, "-c", "print('ready', flush=True); input()"])
    screen = terminal(80, 24, term="dumb")
    begin_top(screen, target.pid, "-n", "1")
    screen.wait_for("^rc 0$")
    assert "torch is not imported." in screen.screen()
    assert b"\x1b[?1049h" not in screen.raw.read_bytes()
