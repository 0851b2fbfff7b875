"""Pid namespaces: dynprof-bpf inside a container's, speaking of the ids that are seen there, and on the host
beside a target that is in one. `unshare` makes what a container engine would."""

import json
import re
import shutil
import signal
from pathlib import Path

import pytest

import samples
import support
from conftest import COMPILE_JOB

pytestmark = [
    pytest.mark.root_bpf,
    pytest.mark.skipif(not shutil.which("unshare"), reason="needs unshare of util-linux"),
]

PROGRAM = support.REPO / "tests" / "programs" / "process_life.py"
UNSHARE = ["unshare", "--pid", "--fork", "--mount-proc"]
# A process 1 that outlives its child: everything in the namespace ends with it, dynprof-bpf too.
CONTAINER = [*UNSHARE, "sh", "-c", '"$@"; echo left $?; read end', "sh"]


def child_of(pid):
    """The process in the new namespace, as the host calls it."""
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return int(text.split()[0])


def start(dynprof, target, inside, *arguments):
    """Records the container's second process from inside, or from the host; the pid it is then called."""
    host_pid = child_of(child_of(target.pid))
    if not inside:
        return dynprof.start("--pid", host_pid, *arguments), host_pid
    status = Path(f"/proc/{host_pid}/status").read_text()
    own_pid = int(re.search(r"^NSpid:.*\t(\d+)$", status, re.M)[1])
    enter = support.Dynprof(dynprof._folder, Path(shutil.which("nsenter")))
    run = enter.start("-t", host_pid, "--pid", "--mount", support.BINARY, "--pid", own_pid, *arguments)
    dynprof._started += enter._started
    return run, own_pid


@pytest.mark.pythons("3.12", "3.13")
@pytest.mark.parametrize("inside", [True, False], ids=["inside", "host"])
def test_children_and_threads(interpreter, spawn, dynprof, tmp_path, inside):
    target = spawn([*CONTAINER, interpreter.path, PROGRAM, "children", interpreter.path])
    run, pid = start(dynprof, target, inside, "-F", 499, "-o", tmp_path / "out")
    samples.wait_until_sampling(run)
    target.send("go")
    target.wait_for("^left 0", timeout=60)
    done = run.wait()
    assert done.rc == 0, done
    dump = samples.Dump(tmp_path / "out" / "recording.dynprof")
    told = dict(re.findall(r"child (\w+) (\d+)", target.text))
    assert set(told) == {"fork", "multiprocessing_fork", "multiprocessing_spawn", "subprocess", "shell"}
    for kind, own_id in told.items():
        function = f"{kind}_child"
        found = {p["pid"] for p in dump.processes if dump.functions(p["pid"])[function]}
        if kind == "shell":
            continue
        assert len(found) == 1, (kind, found)
        assert pid in {p["parent_pid"] for p in dump.processes if p["pid"] in found}
        if inside:
            assert found == {int(own_id)}


@pytest.mark.parametrize("inside", [True, False], ids=["inside", "host"])
def test_compiles_are_exact(venv_python, spawn, dynprof, tmp_path, inside):
    target = spawn(
        [*CONTAINER, venv_python, COMPILE_JOB, tmp_path / "truth.json", "--unwrapped", "--backend", "aot_eager"],
        timeout=180,
    )
    run, pid = start(dynprof, target, inside, "-F", 499, "-o", tmp_path / "out")
    samples.wait_until_sampling(run)
    target.send("go")
    target.wait_for("^left 0", timeout=300)
    done = run.wait()
    assert done.rc == 0, done
    ledger = json.loads((tmp_path / "out" / "compiles.json").read_text())
    assert ledger["pid"] == pid
    rows = ledger["compiles"]
    assert len(rows) >= 2
    assert all(row["exact"] for row in rows), rows
    assert ledger["agreement"]["both"] > 0 and ledger["agreement"]["differ"] == 0
    assert ledger["edges"]["begins_missing"] == ledger["edges"]["ends_missing"] == 0


MANY_THREADS = """
import threading
print("ready", flush=True)
input()
for _ in range(40000):
    thread = threading.Thread(target=len, args=("",))
    thread.start()
    thread.join()
print("done", threading.get_native_id(), flush=True)
"""


@pytest.mark.pythons("3.13", "3.13")
def test_places_of_ended_threads_are_free(interpreter, spawn, dynprof, tmp_path):
    """More threads than there are places for their times (32,768), one after the other. What each was on a CPU
    ends with it: in a container it has no ids any more at its last switch."""
    target = spawn([*CONTAINER, interpreter.path, "-c", MANY_THREADS])
    run, pid = start(dynprof, target, True, "-F", 99, "-o", tmp_path / "out")
    samples.wait_until_sampling(run)
    target.send("go")
    target.wait_for("^done", timeout=120)
    target.wait_for("^left 0", timeout=60)
    done = run.wait()
    assert done.rc == 0, done
    dump = samples.Dump(tmp_path / "out" / "recording.dynprof")
    # The main thread's place is taken: the one thread that has the same low bits is not timed.
    assert dump.counter("wait_collision") < 100
    last = {}
    for wait in dump.waits:
        last[wait.tid] = wait
    ended = [wait for tid, wait in last.items() if tid != pid]
    assert len(ended) > 32768
    wall_ns = max(wait.end_ns for wait in ended) - dump.meta["start_ns"]
    assert sum(wait.cpu_ns for wait in ended) < wall_ns


def test_the_id_of_a_container_is_explained(spawn, dynprof):
    """An id that only the target's own namespace knows: the error names the process that is meant."""
    free = next(n for n in range(30000, 2000, -1) if not Path(f"/proc/{n}").exists())
    script = f"echo {free - 1} > /proc/sys/kernel/ns_last_pid; sleep 60 & echo ready $!; wait"
    target = spawn([*UNSHARE, "sh", "-c", script], ready=f"ready {free}")
    shell = child_of(target.pid)
    meant = child_of(shell)
    done = dynprof.run("--pid", free)
    assert done.rc != 0
    assert f"error: there is no process {free} here; a container knows process {meant} by this pid\n" in done.err
    assert f"hint: sudo dynprof-bpf --pid {meant}\n" in done.err


@pytest.mark.pythons("3.11", "3.11")
def test_all_processes(interpreter, spawn, dynprof, tmp_path):
    """--all: targets found and started later, native programs and kernel threads in one recording."""
    early = spawn([interpreter.path, PROGRAM, "burn", "the_work", "2"])
    run = dynprof.start("--all", "-F", 499, "-o", tmp_path / "out")
    samples.wait_until_sampling(run)
    late = spawn([interpreter.path, PROGRAM, "burn", "the_work", "2"])
    for target in (early, late):
        target.send("go")
        assert target.wait() == 0, target.text
    run.signal(signal.SIGINT)
    done = run.wait()
    assert done.rc == 0, done
    assert re.search(r"Sampling all processes 499 times a second", done.err)
    dump = samples.Dump(tmp_path / "out" / "recording.dynprof")
    for target in (early, late):
        assert dump.functions(target.pid)["the_work"] >= 0.8 * 2 * 499
    assert "all processes" in (tmp_path / "out" / "report.txt").read_text().splitlines()[0]
    assert dump.meta["target_pid"] == -1


def test_all_goes_alone(dynprof):
    for arguments in (("--all", "--pid", "1"), ("--all", "--no-children"), ("record", "--all", "--", "true")):
        done = dynprof.run(*arguments)
        assert done.rc == 2 and done.err.startswith("error: ") and "\nhint: " in done.err, done
