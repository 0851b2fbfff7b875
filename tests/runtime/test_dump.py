"""`dump`: where every thread stands and what it compiles, held against what the program says of itself
(tests/programs/dump_stacks.py on each CPython, stuck_compile.py with torch)."""

import json
import os
import re
import signal
import time
from pathlib import Path

import pytest

import support
from tmux_terminal import wait_until

pytestmark = pytest.mark.pythons(last="3.15")

PROGRAMS = support.REPO / "tests" / "programs"
STACKS = PROGRAMS / "dump_stacks.py"
STUCK = PROGRAMS / "stuck_compile.py"
FAKE = PROGRAMS / "fake_torch" / "main.py"
COLUMNS = 100

KEYS = (
    "version pid command python torch seconds_to_read compile_lock_holder other_threads"
    " subinterpreter_threads threads_left_out problems threads"
).split()
THREAD_KEYS = "tid name comm state consistent compile waits_for_compile_lock frames truncated"
COMPILE_KEYS = "trace_id attempt kind seconds phase torch_phases user_code_is user_code graph_node graph_nodes"
FRAME_KEYS = "function file line first_line".split()


def dump(dynprof, pid):
    done = dynprof.run("dump", "-p", pid, "--json")
    assert done.rc == 0 and done.err == "", done
    found = json.loads(done.out)
    assert list(found) == KEYS and found["version"] == 1 and found["pid"] == pid
    for thread in found["threads"]:
        assert list(thread) == THREAD_KEYS.split()
        assert all(list(frame) == FRAME_KEYS for frame in thread["frames"])
        if thread["compile"]:
            assert list(thread["compile"]) == COMPILE_KEYS.split()
    return found


def text(dynprof, pid):
    """The lines of each thread, its header made one line again, by thread id."""
    done = dynprof.run("dump", "--pid", pid)
    assert done.rc == 0, done
    lines = done.out.splitlines()
    assert max(map(len, lines)) <= COLUMNS
    threads = {}
    for block in re.sub(r"\n    ", " ", done.out).split("\n\n")[1:]:
        tid = re.match(r"Thread (\d+) ", block)
        if tid:
            threads[int(tid.group(1))] = block.splitlines()
    return threads, done


def places(thread):
    return [[frame["function"], frame["file"], frame["line"]] for frame in thread["frames"]]


def by_name(found):
    return {thread["name"]: thread for thread in found["threads"]}


# ---- known stacks on every CPython ---------------------------------------------------------------


def settle(pid, running=0):
    """Waits until the threads have gone where they said they would."""
    states = "R" * (running + 1)
    deadline = time.monotonic() + 10
    while states.count("R") > running and time.monotonic() < deadline:
        time.sleep(0.02)
        stats = [task.joinpath("stat") for task in Path(f"/proc/{pid}/task").iterdir()]
        states = "".join(stat.read_text().rpartition(")")[2].split()[0] for stat in stats)


def stand(spawn, interpreter, plan, **env):
    target = spawn([interpreter.path, STACKS, plan], env=env)
    truth = json.loads(target.wait_for("^ready (.*)").group(1))
    settle(target.pid, running=1 if plan in ("busy", "hurry") else 0)
    user_code = truth.pop("user_code", None)
    return target, {int(tid): known for tid, known in truth.items()}, user_code


def test_threads_that_stand_still(dynprof, spawn, interpreter):
    target, truth, _ = stand(spawn, interpreter, "still")
    found = dump(dynprof, target.pid)
    assert found["python"] == ".".join(map(str, interpreter.version))
    assert found["torch"] is None and found["problems"] == []
    assert found["compile_lock_holder"] is None
    assert found["other_threads"] == 0 and found["subinterpreter_threads"] == 0
    threads = {thread["tid"]: thread for thread in found["threads"]}
    assert set(threads) == set(truth) | {target.pid} and len(truth) == 4
    for tid, known in truth.items():
        assert places(threads[tid]) == known["stack"]
        assert threads[tid]["name"] == known["name"]
    for thread in threads.values():
        assert thread["state"] == "sleeping" and thread["consistent"] is True
        assert thread["compile"] is None and thread["truncated"] is False
    main = threads[target.pid]
    assert main["name"] == "MainThread" and len(places(main)) == 1
    assert places(main)[0][:2] == ["<module>", str(STACKS)]


def test_the_text(dynprof, spawn, interpreter):
    target, truth, _ = stand(spawn, interpreter, "still")
    threads, done = text(dynprof, target.pid)
    assert done.out.startswith(f"Process {target.pid}: ") and "no torch: 5 threads\n" in done.out
    assert set(threads) == set(truth) | {target.pid}
    for tid, known in truth.items():
        assert len(threads[tid]) == 1 + len(known["stack"])
        for line, (function, file, number) in zip(threads[tid][1:], known["stack"], strict=True):
            shown = re.fullmatch(r"  (\S+) \((.+):(\d+)\)", line)
            assert shown and int(shown.group(3)) == number, line
            assert function.startswith(shown.group(1).rstrip("…"))
            assert file.endswith(shown.group(2).lstrip("…"))
    assert threads[target.pid][0] == f'Thread {target.pid} "MainThread" sleeping'
    odd = next(tid for tid, known in truth.items() if "\x1b" in known["name"])
    assert threads[odd][0] == f'Thread {odd} "two\\nlines\\x1b[31m \\u202e" sleeping'


def test_a_busy_thread(dynprof, spawn, interpreter):
    target, truth, _ = stand(spawn, interpreter, "busy")
    busy = next(tid for tid, known in truth.items() if known["name"] == "spin")
    states = set()
    for _ in range(5):
        threads = {thread["tid"]: thread for thread in dump(dynprof, target.pid)["threads"]}
        thread, known = threads[busy], truth[busy]
        assert thread["consistent"] is True
        assert places(thread)[1:] == known["stack"][1:]
        assert places(thread)[0][:2] == known["stack"][0][:2]
        first, last = known["leaf"]
        assert first <= places(thread)[0][2] <= last
        states.add(thread["state"])
        assert all(places(threads[tid]) == truth[tid]["stack"] for tid in truth if tid != busy)
    assert "running" in states


def test_no_stack_is_a_mixture_of_two(dynprof, spawn, interpreter):
    """Calls and generators at full speed: each stack is one of those there are."""
    target, truth, _ = stand(spawn, interpreter, "hurry")
    ((tid, known),) = truth.items()
    believed = 0
    for _ in range(25):
        threads = {thread["tid"]: thread for thread in dump(dynprof, target.pid)["threads"]}
        if not threads[tid]["consistent"]:
            continue
        assert [frame["function"] for frame in threads[tid]["frames"]] in known["stacks"]
        believed += 1
    assert believed > 12


def test_a_stack_of_more_frames_than_are_read(dynprof, spawn, interpreter):
    target, truth, _ = stand(spawn, interpreter, "deepest")
    deepest = by_name(dump(dynprof, target.pid))["deepest"]
    assert deepest["truncated"] is True and deepest["consistent"] is True
    assert places(deepest) == truth[deepest["tid"]]["stack"][:1024]
    threads, _ = text(dynprof, target.pid)
    assert threads[deepest["tid"]][-1] == "  more than 1024 frames"


@pytest.mark.pythons("3.13", "3.13")
def test_many_threads(dynprof, spawn, interpreter):
    target, truth, _ = stand(spawn, interpreter, "many")
    found = dump(dynprof, target.pid)
    assert len(found["threads"]) == len(truth) + 1 == 311
    threads = [thread for thread in found["threads"] if thread["tid"] != target.pid]
    assert all(places(thread) == truth[thread["tid"]]["stack"] for thread in threads)
    threads, done = text(dynprof, target.pid)
    assert len(threads) == 300 and "\n11 more threads" in done.out


# ---- what looks like torch -----------------------------------------------------------------------


def test_who_waits_for_the_compile_lock(dynprof, spawn, interpreter):
    target, _, _ = stand(spawn, interpreter, "locks")
    found = dump(dynprof, target.pid)
    threads = by_name(found)
    waiting = {name for name, thread in threads.items() if thread["waits_for_compile_lock"]}
    assert waiting == {"wants", "wants too"}
    assert found["compile_lock_holder"] == threads["owner"]["tid"]
    assert [thread["name"] for thread in found["threads"][:2]] == ["wants", "wants too"]
    shown, done = text(dynprof, target.pid)
    assert "2 waiting for the compile lock" in done.out
    wants = threads["wants"]["tid"]
    assert shown[wants][0].endswith(
        f": waits for the compile lock, held by thread {threads['owner']['tid']}"
    )


def test_what_is_traced(dynprof, spawn, interpreter):
    """The line of a call from its instruction where it has one; a translator's own may be stale."""
    layout = "2.6" if interpreter.minor == (3, 12) else "2.13"
    target, _, user_code = stand(spawn, interpreter, "tracing", FAKE_TORCH_LAYOUT=layout)
    found = dump(dynprof, target.pid)
    thread = found["threads"][0]
    assert thread["name"] == "tracer" and found["torch"] == f"{layout}.0+fake"
    compile_ = thread["compile"]
    assert [[line["function"], line["file"], line["line"]] for line in compile_["user_code"]] == (
        user_code
    )
    assert compile_["user_code_is"] == "tracing"
    # By the frames alone: there is nothing else of torch in this process, least of all its start.
    assert (compile_["trace_id"], compile_["attempt"]) == ("3/7", 2)
    assert compile_["kind"] == "forward" and compile_["torch_phases"] == []
    assert compile_["seconds"] is None and compile_["phase"] is None


@pytest.mark.parametrize("scenario", ("backward", "backward_dict", "backward_none"))
def test_a_backward_by_its_frames(dynprof, spawn, interpreter, scenario):
    target = spawn(
        [interpreter.path, FAKE, scenario], env={"FAKE_TORCH_LAYOUT": "2.13"}, ready="^ready"
    )
    compile_ = dump(dynprof, target.pid)["threads"][0]["compile"]
    if scenario == "backward_none":
        assert compile_ is None
    else:
        assert (compile_["trace_id"], compile_["attempt"]) == ("12/1", 5)
        assert compile_["kind"] == "backward"


# ---- torch ---------------------------------------------------------------------------------------

PLACES = ("idle", "tracing", "backend", "backward", "retracing", "nested", "waiting", "running")


@pytest.fixture(scope="module")
def stuck(venv_python, tmp_path_factory):
    """What dump says at each place where stuck_compile.py stands, and what is true there."""
    folder = tmp_path_factory.mktemp("stuck")
    target = support.spawn([venv_python, STUCK, *PLACES], ready="^at", env={"TMPDIR": str(folder)})
    dynprof = support.Dynprof(folder)
    seen = {}
    try:
        for place in PLACES:
            truth = json.loads(target.wait_for(f"^at {place} (.*)", timeout=60).group(1))
            settle(target.pid, running=1 if place == "running" else 0)
            before = time.time_ns()
            times = 6 if place == "running" else 1
            found = [dump(dynprof, target.pid) for _ in range(times)]
            seen[place] = {
                "truth": truth,
                "found": found[0] if times == 1 else found,
                "text": text(dynprof, target.pid),
                "between": (before, time.time_ns()),
            }
            target.send("")
        target.wait_for("^done", timeout=60)
        yield seen
    finally:
        dynprof.close()
        target.kill()


def test_the_node_that_is_lowered_and_whether_it_advances(dynprof, spawn, venv_python, tmp_path):
    cache = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    target = spawn([venv_python, STUCK, "lowering"], ready=None, env=cache)
    truth = json.loads(target.wait_for(r"^at lowering (.*)", timeout=180).group(1))
    settle(target.pid, running=0)
    compile_ = dump(dynprof, target.pid)["threads"][0]["compile"]
    assert (compile_["graph_node"], compile_["graph_nodes"]) == (truth["node"], truth["nodes"])
    done = dynprof.run("dump", "-p", target.pid, "--every", "500ms", "-n", 3)
    assert done.rc == 0, done
    first, *later = re.split(r"(?m)^After (.*) s:$", done.out)
    assert "GraphLowering.run_node" in first and "not advanced" not in first
    assert [float(later[0]), float(later[2])] == pytest.approx([0.5, 1.0], abs=0.4)
    at = f"; node {truth['node']} of {truth['nodes']} has not advanced for "
    for text in later[1::2]:
        assert re.search("compiling 0/0 .*" + at, re.sub(r"\s+", " ", text)), text
        assert "GraphLowering.run_node (" not in text
    done = dynprof.run("dump", "-p", target.pid, "--every", "100ms", "-n", 2, "--json")
    assert [json.loads(line)["pid"] for line in done.out.splitlines()] == [target.pid] * 2


def test_again_until_the_process_ends(dynprof, spawn):
    target = spawn(["/usr/bin/python3", "-c", "print('ready', flush=True); input()"])
    run = dynprof.start("dump", "-p", target.pid, "--every", "100ms")
    wait_until(lambda: "\nAfter " in run.out, "a second dump")
    target.send("")
    done = run.wait()
    assert done.rc == 0 and f"process {target.pid} has ended" in done.err, done
    assert "torch is not imported." in done.out


def line_of(statement, after="", file=STUCK):
    lines = file.read_text().splitlines()
    first = next((i for i, line in enumerate(lines) if after in line), 0)
    return next(i + 1 for i, line in enumerate(lines) if i >= first and line.strip() == statement)


def main_thread(seen):
    return by_name(seen["found"])["MainThread"]


def user_code(thread):
    return [(line["function"], line["line"]) for line in thread["compile"]["user_code"]]


def test_nothing_compiles(stuck):
    seen = stuck["idle"]
    thread = main_thread(seen)
    assert thread["compile"] is None and thread["state"] == "sleeping"
    assert seen["found"]["torch"].startswith("2.13") and "none compiling" in seen["text"][1].out


@pytest.mark.parametrize("place", PLACES[1:-1])
def test_ids_attempts_phases_and_stacks_are_the_true_ones(stuck, place):
    seen = stuck[place]
    truth, thread = seen["truth"], main_thread(seen)
    assert thread["tid"] == truth["tid"] and thread["consistent"] is True
    compile_ = thread["compile"]
    assert (compile_["trace_id"], compile_["attempt"]) == (truth["id"], truth["attempt"])
    assert compile_["torch_phases"] == truth["phases"]
    assert compile_["kind"] == ("backward" if place == "backward" else "forward")
    # All but the leaf, which went on to wait.
    assert places(thread)[1:] == truth["stack"][1:]
    assert seen["found"]["threads"][0]["tid"] == truth["tid"]
    shown = seen["text"][0][truth["tid"]]
    assert f"sleeping: compiling {truth['id']}" in shown[0]
    assert len(shown) == 1 + len(truth["stack"])


def test_what_each_is_at(stuck):
    phases = [main_thread(stuck[place])["compile"]["phase"] for place in PLACES[1:-1]]
    assert phases == ["dynamo", "backend", "aot_autograd", "aot_autograd", "backend", "backend"]
    assert main_thread(stuck["tracing"])["compile"]["attempt"] == 1
    header = stuck["tracing"]["text"][0][stuck["tracing"]["truth"]["tid"]][0]
    assert re.search(
        r": compiling 0/0 attempt 1 for \d+\.\d s, in dynamo > bytecode_tracing; tracing"
        r" stuck_compile\.py:\d+ Block\.forward, called from stuck_compile\.py:\d+ breaks$",
        header,
    )


@pytest.mark.parametrize("place", PLACES[1:-1])
def test_for_how_long(stuck, place):
    seen = stuck[place]
    seconds = main_thread(seen)["compile"]["seconds"]
    low, high = [(now - seen["truth"]["start_ns"]) / 1e9 for now in seen["between"]]
    if place == "nested":
        # torch's metrics know the begin of the outer compile, which waited first.
        assert seen["truth"]["level"] == 2
        assert 0 < seconds < high - 0.3
    else:
        assert seen["truth"]["level"] == 1
        assert low <= seconds <= high


def test_the_users_line(stuck):
    def at(place):
        thread = main_thread(stuck[place])
        assert {line["file"] for line in thread["compile"]["user_code"]} == {str(STUCK)}
        return thread["compile"]["user_code_is"], user_code(thread)

    assert at("tracing") == (
        "tracing",
        [("breaks", line_of("y = block(")), ("Block.forward", line_of("* traced_constant()"))],
    )
    assert at("backend") == ("graph_end", [("plain", line_of("return x * 2"))])
    assert at("nested") == ("graph_end", [("inner", line_of("return x + 3"))])
    assert at("retracing") == ("retracing", [("with_op", line_of("return slow_op(x)"))])
    backward = main_thread(stuck["backward"])["compile"]
    assert backward["user_code_is"] is None and backward["user_code"] == []


def test_a_compile_that_waits_for_another(stuck):
    seen = stuck["waiting"]
    threads = by_name(seen["found"])
    assert seen["found"]["compile_lock_holder"] == threads["MainThread"]["tid"]
    assert threads["second"]["waits_for_compile_lock"] is True
    assert threads["second"]["compile"] is None
    assert places(threads["second"])[0][0] == "CatchErrorsWrapper.__call__"
    assert not threads["MainThread"]["waits_for_compile_lock"]
    assert [thread["name"] for thread in seen["found"]["threads"][:2]] == ["MainThread", "second"]
    assert "1 compiling, 1 waiting for the compile lock" in re.sub(r"\s+", " ", seen["text"][1].out)
    assert stuck["backend"]["found"]["compile_lock_holder"] == threads["MainThread"]["tid"]
    assert stuck["idle"]["found"]["compile_lock_holder"] is None


def test_a_compile_that_runs_on(stuck):
    """Whatever is shown of it is possible: known ids, lines of the functions that are compiled."""
    lines = STUCK.read_text().splitlines()
    for found in stuck["running"]["found"]:
        compile_ = by_name(found)["MainThread"]["compile"]
        if compile_ is None:
            continue
        assert compile_["trace_id"] in ("0/0", "1/0")
        assert compile_["seconds"] is None or 0 <= compile_["seconds"] < 30
        for line in compile_["user_code"]:
            name = line["function"]
            assert name in ("breaks", "Block.forward") or name.startswith("torch_dynamo_resume_in")
            assert line["line"] is None or 0 < line["line"] <= len(lines)


# ---- refusals ------------------------------------------------------------------------------------


def refused(done, code=1):
    assert done.rc == code and done.out == "", done
    assert re.match(r"error: .+\nhint: .+\n$", done.err), done.err


def test_refusals(dynprof, spawn):
    refused(dynprof.run("dump", "-p", 2**22 + 5))
    other = spawn(["/bin/sleep", "60"], ready=None)
    refused(dynprof.run("dump", "-p", other.pid))
    refused(dynprof.run("dump", "-p", f"{os.getpid()},1"), 2)
    refused(dynprof.run("dump", "-p", "x"), 2)
    assert dynprof.run("dump").rc == 2


@pytest.mark.pythons("3.11", "3.11", linkage="static")
def test_processes_of_others_are_refused(dynprof, spawn, interpreter):
    if os.geteuid() != 0:
        pytest.skip("needs root: runs as another user")
    target, _, _ = stand(spawn, interpreter, "still")
    refused(dynprof.run("dump", "-p", target.pid, user="nobody"))


def test_a_stopped_process_is_read_too(dynprof, spawn, venv_python):
    target = spawn([venv_python, STACKS, "still"])
    os.kill(target.pid, signal.SIGSTOP)
    time.sleep(0.1)
    found = dump(dynprof, target.pid)
    assert {thread["state"] for thread in found["threads"]} == {"stopped"}
    assert all(thread["consistent"] for thread in found["threads"])
