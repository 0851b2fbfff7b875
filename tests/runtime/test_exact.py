"""Exact events: probes on time.time_ns, which torch calls where a phase begins and ends, and hardware
watchpoints on the function it enters per inlined call. Held against what torch itself notes in the same
process."""

import collections
import ctypes
import gzip
import json
import os
import re
import signal
import struct
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

import samples
import support

pytestmark = pytest.mark.root_bpf

JOB = support.REPO / "tests" / "programs" / "exact_job.py"
PROBED = "libtorch_python.so"
SLOTS = 4  # debug registers of x86


# ---- hardware watchpoints of our own -------------------------------------------------------------


def take_slots(tid, count=SLOTS):
    """Sets watchpoints on a thread of another process; as many as there was room for."""
    PERF_TYPE_BREAKPOINT, WRITE = 5, 2
    libc = ctypes.CDLL(None, use_errno=True)
    taken = []
    for i in range(count):
        attr = bytearray(128)
        struct.pack_into("<II", attr, 0, PERF_TYPE_BREAKPOINT, len(attr))
        struct.pack_into("<Q", attr, 40, 1 << 5 | 1 << 6)  # exclude_kernel, exclude_hv
        struct.pack_into("<IIQQ", attr, 48, 0, WRITE, 0x10000 + 8 * i, 8)
        buffer = (ctypes.c_char * len(attr)).from_buffer(attr)
        fd = libc.syscall(298, buffer, tid, -1, -1, 8)
        if fd < 0:
            break
        taken.append(fd)
    return taken


def free_slots(tid):
    taken = take_slots(tid)
    for fd in taken:
        os.close(fd)
    return len(taken)


def changed_code(pid):
    """Which of the files with probes have code pages that differ from the file: torch's library, and
    whichever has time.time_ns, the interpreter or a module of it."""
    changed = set()
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in maps:
            found = re.match(r"(\w+)-(\w+) r-xp (\w+) \S+ \d+ +(\S+)$", line)
            name = os.path.basename(found[4]) if found else ""
            if not re.match(rf"{PROBED}|libpython|python3|time\.", name):
                continue
            begin, end, offset = (int(text, 16) for text in found.group(1, 2, 3))
            memory.seek(begin)
            with open(f"/proc/{pid}/root{found[4]}", "rb") as file:
                file.seek(offset)
                if memory.read(end - begin) != file.read(end - begin):
                    changed.add(name if name == PROBED else "clock")
    return sorted(changed)


# ---- spans from edges ----------------------------------------------------------------------------


@dataclass
class Span:
    name: str
    tid: int
    begin: int
    end: int
    depth: int
    state: dict | None  # what torch said when it ended
    outer: "Span | None" = None


def spans_of(dump, begin_kind, end_kind):
    """Those that have both edges, by their end; and how many edges have no partner."""
    spans, lonely = [], 0
    open_ = collections.defaultdict(list)
    for edge in dump.edges:
        stack = open_[edge.tid]
        if edge.kind == samples.WATCH_BEGIN and begin_kind == samples.PHASE_BEGIN:
            stack[:] = [None] * len(dump.contexts[edge.context]["torch"]["phases"])
        elif edge.kind == begin_kind:
            stack.append(edge)
        elif edge.kind == end_kind:
            begin = stack.pop() if stack else None
            if begin is None:
                lonely += 1
                continue
            name = begin.name or begin.function
            state = dump.contexts[edge.context]["torch"]
            spans.append(Span(name, edge.tid, begin.time_ns, edge.time_ns, edge.depth, state))
            if end_kind == samples.PHASE_END:
                assert begin.name == edge.name and begin.depth == edge.depth, (begin, edge)
            if end_kind == samples.INLINE_END:
                spans[-1].state = edge.name  # "raised"
                spans[-1].outer = stack[-1].function if stack else None
    return spans, lonely


def in_us(dump, time_ns):
    return (time_ns + dump.meta["realtime_offset_ns"]) / 1e3


# ---- the recording -------------------------------------------------------------------------------


@dataclass
class Exact:
    dump: samples.Dump
    truth: dict
    ledger: dict
    free_while_recording: int
    free_after: int
    changed_while_recording: list
    changed_after: list
    notes: str
    phases: list
    directory: Path


def record(dynprof, target, folder):
    out = folder / "out"
    run = dynprof.start("--pid", target.pid, "-F", 99, "-o", out)
    samples.wait_until_sampling(run)
    target.send("go")
    target.wait_for("^done", timeout=180)
    free = free_slots(target.pid)
    changed = changed_code(target.pid)
    run.signal(signal.SIGINT)
    done = run.wait()
    assert done.rc == 0, done
    return out, done, free, changed


@pytest.fixture(scope="module", params=["early", "late"])
def exact(request, require_root_bpf, venv_python, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exact")
    options = {"early": [], "late": ["--import-late"]}[request.param]
    target = support.spawn([venv_python, JOB, folder / "truth.json", *options], timeout=180)
    dynprof = support.Dynprof(folder)
    try:
        out, done, free, changed = record(dynprof, target, folder)
        dump = samples.Dump(out / "recording.dynprof")
        yield Exact(
            dump=dump,
            truth=json.loads((folder / "truth.json").read_text()),
            ledger=json.loads((out / "compiles.json").read_text()),
            free_while_recording=free,
            free_after=free_slots(target.pid),
            changed_while_recording=changed,
            changed_after=changed_code(target.pid),
            notes=done.err,
            phases=spans_of(dump, samples.PHASE_BEGIN, samples.PHASE_END)[0],
            directory=out,
        )
        target.send("end")
        assert target.wait() == 0, target.text
    finally:
        dynprof.close()
        target.kill()


def test_the_job_did_what_these_tests_need(exact):
    rows = exact.truth["metrics"]
    assert {row["is_forward"] for row in rows} == {True, False}
    assert any(row["recompile_reason"] for row in rows)
    assert any(row["restart_reasons"] for row in rows)
    assert any(row["fail_type"] for row in rows)
    assert exact.truth["tids"]["second"] != exact.truth["tids"]["main"]


def test_every_phase_has_a_name_and_both_ends(exact):
    begins = [edge for edge in exact.dump.edges if edge.kind == samples.PHASE_BEGIN]
    ends = [edge for edge in exact.dump.edges if edge.kind == samples.PHASE_END]
    assert len(begins) > 60
    unnamed = [edge for edge in begins + ends if not edge.name]
    assert not unnamed, f"{len(unnamed)} of {len(begins) + len(ends)}"
    _, lonely = spans_of(exact.dump, samples.PHASE_BEGIN, samples.PHASE_END)
    assert lonely == 0
    # Each thread is known from its first phase on: none was open when it was first looked at.
    assert not [edge for edge in exact.dump.edges if edge.kind == samples.WATCH_BEGIN]
    tids = {edge.tid for edge in begins}
    assert {exact.truth["tids"]["main"], exact.truth["tids"]["second"]} <= tids


def spans_of_compiles(exact):
    """{(compile id, is forward): [(begin, end, tid)]}"""
    found = collections.defaultdict(list)
    for span in exact.phases:
        if span.name in ("entire_frame_compile", "entire_backward_compile"):
            forward = span.name == "entire_frame_compile"
            found[span.state["id"], forward].append((span.begin, span.end, span.tid))
    return found


def test_compiles_begin_and_end_when_torch_says(exact):
    found = spans_of_compiles(exact)
    used = collections.Counter()
    off = []
    for row in sorted(exact.truth["metrics"], key=lambda row: row["start_time_us"]):
        key = (row["compile_id"], row["is_forward"])
        spans = sorted(found.get(key, []))
        assert len(spans) > used[key], f"{key}: no span; there are {sorted(found)}"
        begin, end, tid = spans[used[key]]
        used[key] += 1
        duration = (end - begin) / 1e3
        away = exact.dump.off_cpu_around_us(tid, begin)
        allowed = max(1000, row["duration_us"] / 100) + away + exact.dump.off_cpu_around_us(tid, end)
        late = in_us(exact.dump, begin) - row["start_time_us"]
        if abs(duration - row["duration_us"]) > allowed or abs(late) > 3000 + away:
            off.append((key, duration, row["duration_us"], late))
    assert not off, f"(id, our us, torch's us, begin off by us): {off}"
    # And no compile that torch does not know.
    rows = collections.Counter((r["compile_id"], r["is_forward"]) for r in exact.truth["metrics"])
    extra = {
        key: len(spans) - rows[key]
        for key, spans in found.items()
        if len(spans) > rows[key] and key != ("0/0", True)  # the model, once more at the end
    }
    assert not extra, extra


def test_phases_last_as_long_as_torch_says(exact):
    """The backend's time of each forward compile, within 2 % or 1 ms."""
    ours = collections.defaultdict(float)
    for span in exact.phases:
        if span.name == "backend_compile" and span.state["id"]:
            ours[span.state["id"]] += (span.end - span.begin) / 1e3
    judged = 0
    for row in exact.truth["metrics"]:
        torchs = row["aot_autograd_cumulative_compile_time_us"]
        ids = [r for r in exact.truth["metrics"] if r["compile_id"] == row["compile_id"]]
        if not row["is_forward"] or not torchs or sum(r["is_forward"] for r in ids) > 1:
            continue  # an id that was used again: which is which is another test's matter
        judged += 1
        assert abs(ours[row["compile_id"]] - torchs) <= max(1000, 0.02 * torchs), row
    assert judged >= 3


def test_thread_locals_and_frames_agree(exact):
    """Sources T and F name the same compile in every sample in which both speak."""
    both, wrong = 0, []
    for sample in exact.dump.samples:
        context = exact.dump.contexts[sample.context]
        by_frames = [id_ for id_, kind in context["markers"] if kind != 2]
        torch = context["torch"]
        if not by_frames or not isinstance(torch, dict) or not torch["id"]:
            continue
        both += 1
        if by_frames[-1] != torch["id"]:
            wrong.append((by_frames, torch))
    assert both >= 20
    assert not wrong, wrong[:5]


def test_inlined_calls_equal_torchs_own_profiler(exact):
    """Functions, callers, calls and primitive calls of one traced model."""
    truth = collections.Counter()
    for name, _, caller, primitive in exact.truth["inlined"]:
        if caller is not None:  # the root is the compile itself
            truth[name, caller, primitive] += 1
    if not any(edge.kind == samples.INLINE_BEGIN for edge in exact.dump.edges):
        pytest.fail("no inlined call was seen")
    # Compiled three times: the second time for this, and then with torch's own profiler on.
    first = sorted((s for s in exact.phases if s.name == "dynamo"), key=lambda s: s.begin)[1]
    ours = collections.Counter()
    stack = []
    for edge in exact.dump.edges:
        if not first.begin <= edge.time_ns <= first.end or edge.tid != first.tid:
            continue
        if edge.kind == samples.INLINE_BEGIN:
            primitive = all(open_[0] != edge.function for open_ in stack)
            caller = stack[-1][0] if stack else "forward"
            # The root is on torch's stack too, under its own name and line.
            stack.append((edge.function, caller, primitive))
        elif edge.kind == samples.INLINE_END:
            call = stack.pop()
            if not edge.name:
                ours[call] += 1
    both = set(truth) | set(ours)
    differ = {key: (ours[key], truth[key]) for key in both if ours[key] != truth[key]}
    # Module.forward of the root and of a block have one name: torch tells them apart by line.
    differ = {key: pair for key, pair in differ.items() if key[0] != "forward"}
    assert not differ, f"(function, caller, primitive): (ours, torch's): {differ}"
    assert sum(n for key, n in ours.items() if key[0] == "forward") == sum(
        n for key, n in truth.items() if key[0] == "forward"
    )


def test_runs_of_regions_and_of_their_backwards(exact):
    """Both are seen, by id, and the trace leads from one to the other."""
    runs, _ = spans_of(exact.dump, samples.REGION_BEGIN, samples.REGION_END)
    forward = collections.Counter(
        run.name.split()[-1] for run in runs if run.name.startswith("Torch-Compiled Region")
    )
    backward = collections.Counter(
        run.name.split()[-1] for run in runs if run.name.startswith("CompiledFunctionBackward")
    )
    # Each trained region ran once, and its backward with it.
    trained = collections.Counter(
        row["compile_id"] for row in exact.truth["metrics"] if not row["is_forward"]
    )
    assert trained and backward == trained
    assert not trained - forward, (trained, forward)
    with gzip.open(exact.directory / "trace.json.gz") as file:
        events = json.load(file)["traceEvents"]
    begins = [event for event in events if event.get("cat") == "fwdbwd" and event["ph"] == "s"]
    assert len(begins) == trained.total()


def test_nothing_stays_behind(exact):
    assert exact.free_while_recording < SLOTS, "the main thread was not watched"
    assert exact.changed_while_recording == sorted(["clock", PROBED])
    assert exact.free_after == SLOTS
    assert exact.changed_after == []


def test_the_ledger_is_exact(exact):
    rows = exact.ledger["compiles"]
    known = {(row["compile_id"], row["is_forward"]) for row in exact.truth["metrics"]}
    ours = {(row["trace_id"], row["kind"] == "forward") for row in rows}
    assert known <= ours, known - ours
    inexact = [row["name"] for row in rows if not row["exact"]]
    assert not inexact


# ---- when something is missing -------------------------------------------------------------------


@pytest.fixture
def target(venv_python, tmp_path):
    target = support.spawn([venv_python, JOB, tmp_path / "truth.json"], timeout=180)
    yield target
    target.kill()


def test_slots_taken_by_a_debugger(dynprof, target, tmp_path):
    """Phases are exact where no watchpoint can be had, user functions are not counted, and one line says
    so."""
    taken = take_slots(target.pid)
    assert len(taken) == SLOTS
    out, done, _, _ = record(dynprof, target, tmp_path)
    for fd in taken:
        os.close(fd)
    assert len(re.findall(r"watchpoint on thread", done.err)) == 1, done.err
    dump = samples.Dump(out / "recording.dynprof")
    main = [edge for edge in dump.edges if edge.tid == target.pid]
    assert not [edge for edge in main if edge.kind == samples.INLINE_BEGIN]
    phases, _ = spans_of(dump, samples.PHASE_BEGIN, samples.PHASE_END)
    assert sum(span.name == "entire_frame_compile" for span in phases) >= 8


def test_without_watchpoints(dynprof, target, tmp_path):
    """Asked for: phases are exact all the same, and there is no line about it."""
    run = dynprof.start("--pid", target.pid, "--no-watchpoints", "-F", 99, "-o", tmp_path / "out")
    samples.wait_until_sampling(run)
    target.send("go")
    target.wait_for("^done", timeout=180)
    assert free_slots(target.pid) == SLOTS
    run.signal(signal.SIGINT)
    done = run.wait()
    assert done.rc == 0 and not re.search("note: .*watch", done.err), done
    rows = json.loads((tmp_path / "out" / "compiles.json").read_text())["compiles"]
    assert len(rows) >= 8 and all(row["exact"] for row in rows)
    dump = samples.Dump(tmp_path / "out" / "recording.dynprof")
    assert not [edge for edge in dump.edges if edge.kind == samples.INLINE_BEGIN]


def test_killed_while_watching(dynprof, target, tmp_path):
    """Watchpoints and probes go with our process, whatever ends it."""
    run = dynprof.start("--pid", target.pid, "-F", 99, "-o", tmp_path / "out")
    samples.wait_until_sampling(run)
    target.send("go")
    target.wait_for("^done", timeout=180)
    assert free_slots(target.pid) < SLOTS
    run.signal(signal.SIGKILL)
    run.wait()
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and (free_slots(target.pid) < SLOTS or changed_code(target.pid)):
        time.sleep(0.05)
    assert free_slots(target.pid) == SLOTS
    assert changed_code(target.pid) == []
    target.send("end")
    assert target.wait() == 0, target.text
