"""Every kind of job torch.compile is used for (tests/programs/matrix_job.py), attached to by pid before its
first compile, and compiles.json held against what torch itself says at the end.

  dynamo    inference, training, graph breaks, recompiles, dynamic shapes, compiled autograd, a backend that
            fails, suppress_errors, two threads at once, a reset; backends eager and aot_eager
  inductor  inference and training through Inductor's cold caches, strict export and an AOTInductor package
  warm      the same inference and training again: its backward comes out of the caches
"""

import pytest

import samples
from matrix_run import JOB, PHASE_OF_FIELD, is_near, kind_of, record_run, windows

pytestmark = pytest.mark.root_bpf

# Counters of what is no loss: of processes that are no Python, threads without one, code that is gone.
NO_LOSS = {
    "not_python",
    "no_thread_state",
    "thread_state_fault",
    "no_frame",
    "unreadable_code",
    "call_beginning",
    "switch_untold",
}
# Inlined calls that Dynamo traced before the watchpoint of their thread was armed: up to the scheduler.
LATE = {"inline_late"}
# Stacks that end where a frame's memory was not there to be read: the sample is, and T knows its compile.
CUT = ("frame_fault", "code_fault")


@pytest.fixture(scope="module")
def recorded(require_root_bpf, venv_python, tmp_path_factory):
    folder = tmp_path_factory.mktemp("matrix")
    known = {}

    def record(name):
        if name in known:
            assert known[name], f"{name} could not be recorded: see the first test"
            return known[name]
        if name == "warm":
            record("inductor")
        known[name] = None
        known[name] = record_run(folder, name, venv_python)
        return known[name]

    return record


@pytest.fixture(params=["dynamo", "inductor", "warm"])
def run(request, recorded):
    return recorded(request.param)


# ---- that the jobs were the jobs these tests are for ---------------------------------------------


def test_the_dynamo_job_is_what_it_should_be(recorded):
    run = recorded("dynamo")
    assert run.truth["errors"] == {"failing_backend": "BackendCompilerFailed"}
    assert run.truth["captures"] == 1
    rows = run.truth["metrics"]
    assert sum("recompile_reason" in row for row in rows) == 3  # two of `shaped`, one of `automatic`
    assert sum("fail_type" in row for row in rows) == 2
    assert sum(bool(row.get("restart_reasons")) for row in rows) == 3
    assert sum(kind_of(row) == "backward" for row in rows) == 3
    assert len(set(run.truth["threads"].values()) - {run.truth["pid"]}) == 2
    assert [row["compile_id"] for row in rows].count("0/0") == 2  # before and after the reset


def test_the_inductor_jobs_are_what_they_should_be(recorded):
    cold, warm = recorded("inductor"), recorded("warm")
    assert [kind_of(row) for row in cold.truth["metrics"]] == [
        *("forward", "forward", "forward", "backward", "export", "export")
    ]
    assert [kind_of(row) for row in warm.truth["metrics"]] == ["forward"] * 3
    assert cold.truth["counters"]["inductor"]["fxgraph_cache_miss"] >= 3
    assert warm.truth["counters"]["inductor"]["fxgraph_cache_hit"] == 3


# ---- the ledger ----------------------------------------------------------------------------------


def test_compiles_kinds_attempts_and_order(run):
    """Rows are paired by their order alone, so that this holds them all."""
    for compile_ in run.compiles:
        found = [(row["trace_id"], row["kind"], row["attempt"]) for row in compile_.rows]
        # torch notes no id of the capture of an export.
        id_ = compile_.id or found[0][0]
        assert found == [(id_, compile_.kind, n) for n in range(compile_.attempts)]
    begins = [row["start_ns"] for row in run.ledger["compiles"]]
    assert begins == sorted(begins) and None not in begins
    assert all(row["exact"] and row["complete"] for row in run.ledger["compiles"])
    assert all(not row["before_attach"] for row in run.ledger["compiles"])


def test_compiled_autograd_captures(run):
    captures = [row for row in run.ledger["compiles"] if row["kind"] == "compiled_autograd"]
    assert [row["trace_id"] for row in captures] == [f"!{n}" for n in range(run.truth["captures"])]
    for capture in captures:
        inside = [c for c in run.compiles if (c.id or "").startswith(capture["trace_id"] + "/")]
        assert inside and all(c.rows[0]["start_ns"] >= capture["start_ns"] for c in inside)
        assert capture["thread"] == run.truth["pid"]


def test_functions(run):
    forwards = {}
    for compile_ in run.compiles:
        metrics = compile_.metrics
        if compile_.kind == "forward":
            names = (metrics["co_name"], metrics["co_filename"], metrics["co_firstlineno"])
            forwards[compile_.id] = names
        elif compile_.kind == "backward":
            names = forwards[compile_.id]
        else:
            names = (None, None, None)  # torch does not say of what an export is
        for row in compile_.rows:
            assert (row["function"], row["file"], row["line"]) == names, str(compile_)


def test_threads(run):
    for compile_ in run.compiles:
        for row in compile_.rows:
            assert row["process"] == run.truth["pid"]
            assert row["thread"] == compile_.thread, str(compile_)


def test_reasons(run):
    for compile_ in run.compiles:
        for row in compile_.rows:
            assert row["recompile_reason"] == compile_.metrics.get("recompile_reason")
            assert sorted(row["restart_reasons"]) == compile_.metrics.get("restart_reasons", [])


def test_graph_breaks(run):
    """Each with the compile that was open by torch's own word, with its line."""
    expected = {}
    for told in run.truth["breaks"]:
        [owner] = [
            number
            for number, c in enumerate(run.compiles)
            if c.id == told["id"]
            and c.metrics["start_time_us"] <= told["time_us"] <= c.metrics["end_time_us"]
        ]
        assert run.compiles[owner].thread == told["tid"]
        expected.setdefault(owner, []).append((told["reason"], told["stack"]))
    for number, compile_ in enumerate(run.compiles):
        found = [
            (b["reason"], [[f["file"], f["line"], f["function"]] for f in b["stack"]])
            for b in compile_.rows[-1]["graph_breaks"]
        ]
        assert found == expected.get(number, []), str(compile_)
        for b in compile_.rows[-1]["graph_breaks"]:
            assert [b["file"], b["line"]] == [b["stack"][-1]["file"], b["stack"][-1]["line"]]
        assert not any(row["graph_breaks"] for row in compile_.rows[:-1])
    remembered = run.truth["breaks"][len(run.truth["breaks"]) - run.truth["remembered"] :]
    assert [b["reason"] for b in run.ledger["graph_breaks"]] == [b["reason"] for b in remembered]


def test_graph_breaks_name_the_users_line(recorded):
    run = recorded("dynamo")
    source = JOB.read_text().splitlines()
    lines = {
        compile_.rows[0]["function"].split("_at_")[0]: source[b["line"] - 1].strip()
        for compile_ in run.compiles
        for b in compile_.rows[-1]["graph_breaks"]
    }
    assert lines == {
        "printing": 'print(end="")',
        "jumping": "if y.sum() > 0:",
        "torch_dynamo_resume_in_jumping": 'print(end="")',
        "again": 'print(end="")',
    }


def test_failures(run):
    for compile_ in run.compiles:
        metrics = compile_.metrics
        failed = f"{metrics['fail_type']}: {metrics['fail_reason']}" if "fail_type" in metrics else None
        assert [row["failed"] for row in compile_.rows] == [None] * (compile_.attempts - 1) + [failed]


def test_caches(run):
    for compile_ in run.compiles:
        metrics = compile_.metrics
        if compile_.id is None:
            continue
        for row in compile_.rows:
            assert row["cache"] == {
                f"{ours}_{what}s": metrics.get(f"{theirs}_local_cache_{kind}_count", 0)
                for ours, theirs in (("fx_graph", "inductor_fx"), ("aot_autograd", "aotautograd"))
                for what, kind in (("hit", "hit"), ("misse", "miss"))
            }, str(compile_)


def test_a_backward_that_came_from_the_cache_is_marked(recorded):
    assert recorded("inductor").one("learned").rows[0]["backward_from_cache"] is None
    assert recorded("inductor").one("learned", "backward").rows[0]["cache"]["fx_graph_misses"] == 1
    warm = recorded("warm")
    assert warm.one("learned").rows[0]["backward_from_cache"] is True
    assert warm.one("inferred").rows[0]["backward_from_cache"] is False
    assert warm.of("learned", "backward") == []


def test_runs_of_a_backward_that_came_from_the_cache_have_its_id(recorded):
    """From torch 2.13 on, the oldest these tests run with."""
    warm = recorded("warm")
    backward = [row["trace_id"] for row in warm.ledger["runs"]["regions"] if row["backward"]]
    assert backward == [warm.one("learned").id]


def test_ids_used_again_after_a_reset(recorded):
    run = recorded("dynamo")
    again = run.one("again")
    assert again.id == "0/0" and [row["repeat"] for row in again.rows] == [2, 2]
    names = [row["name"] for row in run.ledger["compiles"]]
    assert len(set(names)) == len(names)
    profiles = {path.stem for path in (run.directory / "compiles").glob("*.profile")}
    assert {row["name"] for row in run.ledger["compiles"] if row["samples"]} <= profiles


# ---- times ---------------------------------------------------------------------------------------


def test_threads_are_known_from_their_first_phase_on(run):
    """No phase was open on a thread when it was first looked at, and none lacks its begin."""
    assert not [edge for edge in run.dump.edges if edge.kind == samples.WATCH_BEGIN]
    watched = {edge.tid for edge in run.dump.edges if edge.kind == samples.PHASE_BEGIN}
    assert {compile_.thread for compile_ in run.compiles} <= watched


def test_compiles_last_as_long_as_torch_says(run):
    """Within 1 % or 1 ms, by the phase that torch's duration_us is of. A compile of Dynamo's lasts longer
    than that: by what is in `dynamo` around it, which is looked at below."""
    for compile_ in run.compiles:
        metrics = compile_.metrics
        if compile_.kind == "export":
            # duration_us is of some phases only; the row is from begin to end.
            phase = "compile_fx_aot" if compile_.id else "fullgraph_capture"
            ours, theirs = compile_.wall_s(), metrics["end_time_us"] - metrics["start_time_us"]
        else:
            phase = f"entire_{'frame' if compile_.kind == 'forward' else 'backward'}_compile"
            ours, theirs = compile_.wall_s(phase), metrics["duration_us"]
            assert compile_.rows[0]["torch_wall_s"] == pytest.approx(theirs / 1e6, abs=1e-6)
        assert is_near(run, compile_, phase, ours, theirs, 0.01), (str(compile_), ours, theirs)


def test_wall_is_of_the_outermost_phase(run):
    """What wall_s has beyond torch's duration is `dynamo`'s own time, around `entire_frame_compile`."""
    for compile_ in run.compiles:
        rounding = 2e-6 * (1 + compile_.attempts)
        if compile_.kind == "forward":
            assert compile_.wall_s() == pytest.approx(compile_.wall_s("dynamo"), abs=rounding)
            around = sum(
                p["exclusive_s"] for row in compile_.rows for p in row["torch_phases"] if p["name"] == "dynamo"
            )
            inside = compile_.wall_s("entire_frame_compile")
            assert inside == pytest.approx(compile_.wall_s() - around, abs=rounding), str(compile_)
        elif compile_.kind == "backward":
            whole = compile_.wall_s("entire_backward_compile")
            assert compile_.wall_s() == pytest.approx(whole, abs=rounding)
        for row in compile_.rows:
            parts = sum(phase["wall_s"] for phase in row["phases"]) + row["nested_wall_s"]
            assert parts == pytest.approx(row["wall_s"], abs=1e-5)


def test_compiles_begin_when_torch_says(run):
    """Its start is noted inside the first phase of a forward, before the second, and inside that of a
    backward. How long the first phase lasts before the second depends on the machine."""
    offset = run.dump.meta["realtime_offset_ns"]
    for compile_ in run.compiles:
        begin = compile_.rows[0]["start_ns"]
        inner = [
            edge.time_ns
            for edge in run.dump.edges
            if edge.kind == samples.PHASE_BEGIN and edge.tid == compile_.thread and edge.depth == 2
        ]
        second = min((time_ns for time_ns in inner if time_ns > begin), default=begin)
        began_us, second_us = (begin + offset) / 1e3, (second + offset) / 1e3
        start_us = compile_.metrics["start_time_us"]
        latest_us = max(second_us, began_us) if compile_.kind == "forward" else began_us
        assert began_us - 5000 < start_us < latest_us + 5000, str(compile_)


def test_phases_last_as_long_as_torch_says(run):
    """Within 2 % or 1 ms, for every field of torch's that a phase adds to."""
    judged, off = 0, []
    for compile_ in run.compiles:
        for field, phase in PHASE_OF_FIELD.items():
            if not compile_.metrics.get(field):
                continue
            judged += 1
            ours, theirs = compile_.wall_s(phase), compile_.metrics[field]
            if not is_near(run, compile_, phase, ours, theirs, 0.02):
                off.append((str(compile_), phase, ours, theirs))
    assert not off
    assert judged >= {"dynamo": 50, "inductor": 25, "warm": 6}[run.name]


# ---- samples -------------------------------------------------------------------------------------


def test_samples_inside_compiles_are_theirs(run):
    threads = samples.ByThread(run.dump.of_pid(run.truth["pid"]))
    seen, wrong, total = set(), [], 0
    for begin, end, compile_ in windows(run):
        for sample in threads.between(compile_.thread, begin, end):
            if id(sample) in seen:
                continue
            seen.add(id(sample))
            total += 1
            found = run.dump.compiles[sample.compile] if sample.compile >= 0 else None
            id_ = compile_.id or compile_.rows[0]["trace_id"]
            if not found or (found["id"], found["kind"]) != (id_, compile_.kind):
                wrong.append((str(compile_), sample.time_ns - begin, end - sample.time_ns, found, sample.flags))
    assert total >= {"dynamo": 1000, "inductor": 600, "warm": 150}[run.name]
    assert len(wrong) <= 0.005 * total, f"{len(wrong)} of {total}: {wrong[:10]}"


def test_thread_locals_and_frames_agree(run):
    agreement = run.ledger["agreement"]
    assert agreement["differ"] == 0
    assert agreement["both"] >= {"dynamo": 1000, "inductor": 300, "warm": 100}[run.name]


def test_nothing_is_lost(run):
    lost = {name: count for name, count in run.ledger["lost"].items() if count}
    native = {name: count for name, count in lost.items() if name.startswith("native_")}
    assert set(lost) - set(native) <= NO_LOSS | LATE | set(CUT) | {"unmerged"}, lost
    own = run.dump.of_pid(run.truth["pid"])
    cut = sum(sample.flags & samples.NATIVE_CUT != 0 for sample in own)
    assert cut <= 0.02 * len(own), (cut, len(own), native)
    # The C++ compiler recurses deeper than we go, and its short children end before their tables are read.
    assert sum(native.values()) <= 0.05 * run.ledger["samples"], native
    assert lost.get("unmerged", 0) <= 0.001 * run.ledger["samples"]
    assert sum(lost.get(name, 0) for name in CUT) <= 0.005 * run.ledger["samples"]
    assert run.ledger["edges"]["begins_missing"] == run.ledger["edges"]["ends_missing"] == 0
    assert "(0 lost)" in run.done.err
    assert run.dump.complete and not run.dump.damage
