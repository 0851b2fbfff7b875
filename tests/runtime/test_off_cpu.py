"""Time off the CPU against the truth: programs/known_waits.py measures its own waits.

On every CPython found: lengths, kinds and places of known waits; per thread, what it ran, waited and
could have run adds up to the wall time; and a cold compile's wall time is shared out likewise.
"""

import json
import pstats
import sys

import pytest

import samples
import support

pytestmark = pytest.mark.root_bpf

PROGRAM = support.REPO / "tests" / "programs" / "known_waits.py"
WALL = 0.01  # on-CPU + waits + runnable against wall
STOLEN = 0.06  # of wall: what a thread's CPU clock may leave out
MS = 1_000_000
HOST_SLICE = 5 * MS  # longest that a virtual CPU is taken away at once


class Recorded:
    def __init__(self, truth, dump, pid, directory):
        self.truth, self.dump, self.pid, self.directory = truth, dump, pid, directory
        self.waits = [wait for wait in dump.waits if wait.pid == pid]

    def of(self, tid):
        return [wait for wait in self.waits if wait.tid == tid]


_recorded = {}


@pytest.fixture
def recorded(interpreter, dynprof, spawn, tmp_path_factory):
    if interpreter not in _recorded:
        folder = tmp_path_factory.mktemp("waits")
        target = spawn([interpreter.path, PROGRAM, folder / "truth.json"])
        target.wait_for("^ready")
        run = samples.start_recording(dynprof, folder / "out", "-p", target.pid, hertz=99)
        target.send("go")
        target.wait_for("^done", timeout=120)
        assert target.wait() == 0
        done = run.wait()
        assert done.rc == 0, done
        truth = json.loads((folder / "truth.json").read_text())
        dump = samples.Dump(folder / "out" / "recording.dynprof")
        _recorded[interpreter] = Recorded(truth, dump, target.pid, folder / "out")
    return _recorded[interpreter]


def longest(recorded, entry):
    inside = [
        wait
        for wait in recorded.of(entry["tid"])
        if wait.begin_ns >= entry["begin"] - MS
        and wait.end_ns <= entry["end"] + MS
        and wait.kind != "preempted"
    ]
    assert inside, entry
    return max(inside, key=lambda wait: wait.length_ns)


def kinds_of(entry, interpreter):
    # Before 3.11 time.sleep() is a select without files.
    if entry["kind"] == "sleep" and interpreter.version < (3, 11):
        return ("poll",)
    return (entry["kind"],)


def cpu_at(marks, time_ns):
    """The thread's CPU time then, between the two moments around it that tell it."""
    before = max((mark for mark in marks if mark[0] <= time_ns), default=None)
    after = min((mark for mark in marks if mark[0] >= time_ns), default=None)
    assert before and after, time_ns
    if before[0] == after[0]:
        return before[1]
    return before[1] + (after[1] - before[1]) * (time_ns - before[0]) / (after[0] - before[0])


def overlap(begin, end, low, high):
    return max(0, min(end, high) - max(begin, low))


def off_cpu(waits, begin, end):
    """Nanoseconds between begin and end that a thread waited or could have run; of a span, its part there."""
    return sum(
        wait.length_ns * overlap(wait.begin_ns, wait.end_ns, begin, end) / wait.span_ns
        for wait in waits
        if wait.span_ns
    )


def account(recorded, entry):
    """(off, on) the CPU: nanoseconds of a thread between entry's begin and end, as recorded."""
    mine = recorded.of(entry["tid"])
    marks = set()
    for wait in mine:
        if wait.span_ns == wait.length_ns:
            marks.add((wait.begin_ns, wait.cpu_ns))
        marks.add((wait.end_ns, wait.cpu_ns))
    on = cpu_at(marks, entry["end"]) - cpu_at(marks, entry["begin"])
    return off_cpu(mine, entry["begin"], entry["end"]), on


def test_lengths_kinds_and_places(recorded, interpreter):
    assert len(recorded.truth["waits"]) == 21
    for entry in recorded.truth["waits"]:
        wait = longest(recorded, entry)
        assert wait.kind in kinds_of(entry, interpreter), (entry, wait)
        wall = entry["end"] - entry["begin"]
        assert wait.length_ns <= wall
        # Until it could end at all, the thread waited, but for what it took to get there.
        off = off_cpu(recorded.of(entry["tid"]), entry["begin"], entry["due"])
        assert off >= 0.95 * (entry["due"] - entry["begin"]), (entry, wait)
        assert wait.length_ns >= 0.95 * off, (entry, wait)
        # What was not waited was run. Short waits are summed for 10 ms.
        off, on = account(recorded, entry)
        assert on + off == pytest.approx(wall, rel=WALL, abs=10 * MS), (entry, wait)
        leaf = recorded.dump.stack(wait.stack)[-1]
        assert (leaf.function, leaf.line) == (entry["function"], entry["line"]), (entry, leaf)
        assert leaf.file == str(PROGRAM)


def not_due(recorded, thread):
    """Nanoseconds of the thread's waits in which nothing had woken it yet."""
    mine = recorded.of(thread["tid"])
    return sum(
        off_cpu(mine, entry["begin"], entry["due"])
        for entry in recorded.truth["waits"]
        if entry["tid"] == thread["tid"] and thread["begin"] <= entry["begin"] and entry["end"] <= thread["end"]
    )


def test_a_threads_wall_time_is_accounted_for(recorded):
    for thread in recorded.truth["threads"]:
        wall = thread["end"] - thread["begin"]
        off, on = account(recorded, thread)
        assert on + off == pytest.approx(wall, rel=WALL), thread["name"]
        # The thread's own clock stands still in interrupts, and while the host has taken the CPU.
        assert on <= thread["cpu"] + STOLEN * wall, thread["name"]
        # It is read a moment before the switch out: what the host takes just there, it alone has. After a
        # wake-up that preempts, the kernel does not read it again at the switch in: the thread's time begins
        # when it is woken.
        woken = HOST_SLICE if thread["name"] == "contends" else off - not_due(recorded, thread)
        assert on >= 0.98 * thread["cpu"] - woken, thread["name"]


def test_a_preempted_thread_did_not_wait(recorded):
    (thread,) = [one for one in recorded.truth["threads"] if one["name"] == "contends"]
    inside = [
        wait
        for wait in recorded.of(thread["tid"])
        if wait.begin_ns >= thread["begin"] and wait.end_ns <= thread["end"]
    ]
    off = thread["end"] - thread["begin"] - thread["cpu"]
    runnable = sum(wait.runnable_ns for wait in inside)
    waited = sum(wait.length_ns - wait.runnable_ns for wait in inside)
    assert off > 200 * MS  # the other process had its share
    assert runnable == pytest.approx(off, abs=STOLEN * (thread["end"] - thread["begin"]))
    assert waited < 0.02 * off


def test_a_thread_asleep_at_attach_has_its_wait(recorded):
    mine = [wait for wait in recorded.of(recorded.truth["sleeper"]) if wait.kind != "none"]
    first = min(mine, key=lambda wait: wait.begin_ns)
    assert first.flags & samples.WAIT_AT_ATTACH
    assert first.kind == "futex"
    assert first.begin_ns >= recorded.dump.meta["start_ns"]
    assert first.end_ns == pytest.approx(recorded.truth["woken"], abs=20 * MS)


def test_waiting_has_a_stack(recorded):
    waited = [
        wait
        for wait in recorded.waits
        if wait.kind not in ("none", "preempted") and not wait.flags & samples.WAIT_AT_ATTACH
    ]
    total = sum(wait.length_ns for wait in waited)
    with_stack = sum(wait.length_ns for wait in waited if wait.stack)
    assert with_stack >= 0.95 * total
    for name in ("wait_collision", "wait_ring_full", "wait_stack_lost"):
        assert recorded.dump.counter(name) == 0, name


def test_report_and_trace_show_them(recorded):
    report = (recorded.directory / "report.txt").read_text()
    for text in ("Waits, of all threads together", "waits_for_child known_waits.py"):
        assert text in report, report
    assert max(map(len, report.splitlines())) <= 100


def test_without_them(dynprof, spawn, tmp_path):
    target = spawn([sys.executable, PROGRAM, tmp_path / "truth.json"])
    target.wait_for("^ready")
    out = tmp_path / "out"
    run = samples.start_recording(dynprof, out, "-p", target.pid, "--no-off-cpu", "-d", "1s")
    target.send("go")
    assert run.wait().rc == 0
    dump = samples.Dump(out / "recording.dynprof")
    assert dump.waits == []
    assert "Waits" not in (out / "report.txt").read_text()
    target.kill()


def test_a_compile_is_accounted_for(compile_run):
    rows = [row for row in compile_run.ledger["compiles"] if row["exact"] and row["complete"]]
    assert rows
    for row in rows:
        assert row["on_cpu_s"] is not None, row
        parts = row["on_cpu_s"] + row["wait_s"] + row["runnable_s"]
        # Short waits are summed for 10 ms: where in it they were is not known at the compile's two ends.
        assert parts == pytest.approx(row["wall_s"], rel=WALL, abs=0.02), row
        # Its profile too: what its samples stand for, and its waits.
        if row["nested_wall_s"] == 0 and row["samples"] > 0:
            profile = compile_run.directory / "compiles" / f"{row['name']}.profile"
            total = pstats.Stats(str(profile)).total_tt
            assert total == pytest.approx(row["wall_s"], rel=WALL, abs=0.01), row["name"]
        named = sum(seconds for kind, seconds in row["wait_kinds"].items() if kind != "other")
        if row["wait_s"] > 0.05:
            assert named >= 0.95 * row["wait_s"], row
    # Inductor's first compile waits for g++.
    assert any(row["wait_s"] > 0.1 for row in rows), [row["wait_s"] for row in rows]
    inside = [wait for wait in compile_run.dump.waits if wait.compile >= 0]
    waited = [wait for wait in inside if wait.kind != "preempted"]
    total = sum(wait.length_ns for wait in waited)
    assert sum(wait.length_ns for wait in waited if wait.stack) >= 0.95 * total
