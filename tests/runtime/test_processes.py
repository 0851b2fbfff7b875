"""Threads and processes that come, go, are replaced or killed; targets that must not notice us."""

import signal
import subprocess
import time

import pytest

import samples
import support

pytestmark = pytest.mark.root_bpf

PROGRAM = support.REPO / "tests" / "programs" / "process_life.py"


@pytest.fixture
def life(spawn):
    """life(python, verb, ...): a target that waits for a line on its stdin."""
    return lambda python, *arguments: spawn([python, PROGRAM, *arguments])


def finish(run, rc=0):
    done = run.wait()
    assert done.rc == rc, done
    return done


def load(directory):
    dump = samples.Dump(directory / "recording.dynprof")
    assert not dump.damage
    return dump


def assert_ran(dump, pid, function, cpu_s=0.6):
    """The function is in that process, in at least 80 % of the samples its CPU time is worth."""
    counts = dump.functions(pid)
    wanted = 0.8 * cpu_s * dump.meta["frequency_hz"]
    assert counts[function] >= wanted, f"{counts[function]} of {wanted:.0f}: {dict(counts)}"


def process(dump, pid):
    rows = [row for row in dump.processes if row["pid"] == pid]
    assert rows, f"{pid} is not among {dump.processes}"
    return rows[-1]


def test_threads_that_appear_later(interpreter, life, dynprof, tmp_path):
    target = life(interpreter.path, "threads")
    run = samples.start_recording(dynprof, tmp_path / "out", "-p", target.pid)
    target.send("go")
    assert target.wait() == 0
    finish(run)
    dump = load(tmp_path / "out")
    tids = {}
    for sample in dump.of_pid(target.pid):
        for frame in dump.stack(sample.stack):
            if frame.function.startswith("late_thread_"):
                tids.setdefault(frame.function, set()).add(sample.tid)
    assert sorted(tids) == ["late_thread_0", "late_thread_1", "late_thread_2"]
    assert all(len(group) == 1 for group in tids.values())
    assert len(set.union(*tids.values())) == 3
    for name in tids:
        assert_ran(dump, target.pid, name, cpu_s=1.2)
    assert_ran(dump, target.pid, "between_threads", cpu_s=0.9)


def other_python(interpreters, interpreter):
    """Another version for children and exec: offsets must be found anew."""
    supported = [found for found in interpreters if found.minor >= (3, 10)]
    others = [found for found in supported if found.minor != interpreter.minor]
    return (others or supported)[-1]


def child_pids(target):
    rows = [line.split() for line in target.lines if line.startswith("child ")]
    return {kind: int(pid) for _, kind, pid in rows}


def test_children_are_followed(interpreter, interpreters, life, dynprof, tmp_path):
    other = other_python(interpreters, interpreter)
    target = life(interpreter.path, "children", other.path)
    run = samples.start_recording(dynprof, tmp_path / "out", "-p", target.pid)
    target.send("go")
    assert target.wait() == 0
    finish(run)
    dump, pids = load(tmp_path / "out"), child_pids(target)
    for kind in ("fork", "multiprocessing_fork", "multiprocessing_spawn", "subprocess"):
        assert_ran(dump, pids[kind], f"{kind}_child")
        assert process(dump, pids[kind])["parent_pid"] == target.pid
    assert process(dump, pids["subprocess"])["python"] == ".".join(map(str, other.version))
    # Not Python at all, but for the moment between fork and exec: there, without a Python stack.
    shell = dump.of_pid(pids["shell"])
    assert len(shell) >= 50
    assert sum(not dump.stack(sample.stack) for sample in shell) >= 0.9 * len(shell)


def test_no_children(venv_python, life, dynprof, tmp_path):
    target = life(venv_python, "children", venv_python)
    run = samples.start_recording(
        dynprof, tmp_path / "out", "-p", target.pid, "--no-children"
    )
    target.send("go")
    assert target.wait() == 0
    finish(run)
    dump = load(tmp_path / "out")
    assert {sample.pid for sample in dump.samples} == {target.pid}


def test_target_exits_midway(interpreter, life, dynprof, tmp_path):
    target = life(interpreter.path, "leave", "7")
    run = samples.start_recording(dynprof, tmp_path / "out", "-p", target.pid, "-d", "60s")
    target.send("go")
    assert target.wait() == 7
    finish(run)
    dump = load(tmp_path / "out")
    assert dump.complete and "exit" in dump.trailer["reason"]
    assert_ran(dump, target.pid, "before_exit", cpu_s=1.0)


def test_target_is_killed(interpreter, life, dynprof, tmp_path):
    target = life(interpreter.path, "burn", "until_killed", "60")
    run = samples.start_recording(dynprof, tmp_path / "out", "-p", target.pid, "-d", "60s")
    target.send("go")
    time.sleep(1.5)
    target.signal(signal.SIGKILL)
    target.wait()
    finish(run)
    dump = load(tmp_path / "out")
    assert dump.complete
    assert_ran(dump, target.pid, "until_killed", cpu_s=0.3)
    assert (tmp_path / "out" / "report.txt").stat().st_size > 0


def test_target_becomes_another_python(interpreter, interpreters, life, dynprof, tmp_path):
    other = other_python(interpreters, interpreter)
    target = life(interpreter.path, "exec", other.path)
    run = samples.start_recording(dynprof, tmp_path / "out", "-p", target.pid)
    target.send("go")
    assert target.wait() == 0
    finish(run)
    dump = load(tmp_path / "out")
    assert_ran(dump, target.pid, "before_exec")
    assert_ran(dump, target.pid, "after_exec", cpu_s=1.0)


def test_attach_while_python_starts(interpreter, dynprof, tmp_path):
    """The executable is there, the interpreter is not yet: stopped in the dynamic linker or soon
    after, looked at by us, then let go."""
    argv = [interpreter.path, str(PROGRAM), "--no-wait", "burn", "once_started", "2"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as target:
        try:
            target.send_signal(signal.SIGSTOP)
            run = dynprof.start("record", "-F", 999, "-o", tmp_path / "out", "-p", target.pid)
            try:
                run.wait_for_err(r"(?m)^Sampling ", timeout=5)
            except AssertionError:
                assert run.process.poll() is None, run.peek()  # it may wait for Python
            target.send_signal(signal.SIGCONT)
            assert target.wait(30) == 0
            finish(run)
        finally:
            target.kill()
    assert_ran(load(tmp_path / "out"), target.pid, "once_started", cpu_s=2.0)


def test_several_pids(interpreters, life, dynprof, tmp_path):
    supported = [found for found in interpreters if found.minor >= (3, 10)]
    first, second = supported[0], supported[-1]
    one = life(first.path, "burn", "in_the_first", "1.2")
    two = life(second.path, "burn", "in_the_second", "1.2")
    run = samples.start_recording(dynprof, tmp_path / "out", "-p", f"{one.pid},{two.pid}")
    one.send("go")
    assert one.wait() == 0
    assert run.process.poll() is None, "it must go on while a target lives"
    two.send("go")
    assert two.wait() == 0
    finish(run)
    dump = load(tmp_path / "out")
    assert_ran(dump, one.pid, "in_the_first", cpu_s=1.2)
    assert_ran(dump, two.pid, "in_the_second", cpu_s=1.2)
    assert dump.functions(one.pid)["in_the_second"] == 0


def test_record_a_command(interpreter, dynprof, tmp_path):
    command = [interpreter.path, PROGRAM, "--no-wait", "leave", "7"]
    done = dynprof.run("record", "-F", 999, "-o", tmp_path / "out", "--", *command)
    assert done.rc == 7, done
    pid = int(done.out.split()[1])
    assert done.out == f"ready {pid}\n"  # stdout is the command's
    dump = load(tmp_path / "out")
    assert dump.meta["command"] == " ".join(str(word) for word in command)
    assert_ran(dump, pid, "before_exit", cpu_s=1.0)
    assert_ran(dump, pid, "<module>", cpu_s=1.0)  # from its first instruction on


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_target_is_unharmed(interpreter, life, dynprof, tmp_path, end):
    """It counts on while we come, and go in whatever way, and ends well."""
    target = life(interpreter.path, "count")
    target.send("go")
    run = samples.start_recording(dynprof, tmp_path / "out", "-p", target.pid)
    time.sleep(1.2)
    run.signal(end)
    done = run.wait()
    assert done.rc == (-9 if end == signal.SIGKILL else 0), done
    lines = len(target.lines)
    deadline = time.monotonic() + 20
    while len(target.lines) < lines + 2:
        assert time.monotonic() < deadline and target.alive(), "it does not count any more"
        time.sleep(0.05)
    target.signal(signal.SIGTERM)
    assert target.wait() == 0
    assert target.lines[-1].startswith("counted ")

    dump = load(tmp_path / "out")  # readable whichever way we ended
    assert dump.complete == (end != signal.SIGKILL)
    assert_ran(dump, target.pid, "count", cpu_s=0.2)


def test_nothing_of_ours_stays(life, venv_python, dynprof, tmp_path):
    """No BPF program of ours is left in the kernel after SIGKILL."""
    target = life(venv_python, "count")
    target.send("go")
    run = samples.start_recording(dynprof, tmp_path / "out", "-p", target.pid)
    held = support.bpf_programs_of(run.pid)
    names = {row.get("name", "") for row in support.bpf_programs() if row["id"] in held}
    assert {"sample_cpu", "read_markers", "process_fork"} <= names, names
    run.signal(signal.SIGKILL)
    run.wait()
    deadline = time.monotonic() + 10  # the kernel frees them when the last CPU has let go
    while (left := held & {row["id"] for row in support.bpf_programs()}) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left
