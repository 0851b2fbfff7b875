"""Targets whose torch is of another version, lacks something, or lies (tests/programs/fake_torch/compiles.py), on
each CPython: what is true is told, what is not is never shown, and nothing crashes, hangs, or is written
anywhere but in the output directory."""

import json
import re
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

import samples
import support

pytestmark = [pytest.mark.root_bpf, pytest.mark.pythons(last="3.15")]

JOB = support.REPO / "tests" / "programs" / "fake_torch" / "compiles.py"
LAYOUTS = ("2.6", "2.9", "2.13")
HERTZ = 999
TRUE_IDS = {"0/0", "1/1", "2/0"}  # of the forged job


@dataclass
class Run:
    out: Path
    truth: list
    ledger: dict
    done: support.Completed
    target: support.Target
    lacks: list  # what target_dump says while the target stands at its end

    def __post_init__(self):
        self.dump = samples.Dump(self.out / "recording.dynprof")

    def rows(self, kinds=("forward", "backward", "compiled_autograd", "export")):
        return [row for row in self.ledger["compiles"] if row["kind"] in kinds]

    def keys(self, **only):
        return [(row["trace_id"], row["kind"], row["attempt"]) for row in self.rows(**only)]


def keys_of(truth):
    return [(row["id"], row["kind"], row["attempt"]) for row in truth]


def lacks_of(pid):
    tool = support.BUILD / "tests" / "target_dump"
    done = subprocess.run([tool, str(pid), "torch"], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    return [line.removeprefix("lacks ") for line in lines if line.startswith("lacks ")]


@pytest.fixture(scope="module")
def record(require_root_bpf, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bad_targets")
    runner = support.Dynprof(folder)
    targets, known = [], {}

    def make(interpreter, scenario, layout):
        target = support.spawn(
            [interpreter.path, JOB, scenario], env={"FAKE_TORCH_LAYOUT": layout}
        )
        targets.append(target)
        out = folder / f"{interpreter}-{scenario}-{layout}"
        run = runner.start("--pid", target.pid, "-F", HERTZ, "-o", out)
        samples.wait_until_sampling(run)
        target.send("go")
        truth = json.loads(target.wait_for("^done (.*)", timeout=120).group(1))
        run.signal(signal.SIGINT)
        done = run.wait()
        assert done.rc == 0, done
        assert target.alive()
        ledger = json.loads((out / "compiles.json").read_text())
        return Run(out, truth, ledger, done, target, lacks_of(target.pid))

    def record(interpreter, scenario, layout="2.13"):
        key = (interpreter, scenario, layout)
        if key not in known:
            known[key] = make(*key)
        return known[key]

    yield record
    runner.close()
    for target in targets:
        target.kill()


# ---- torch of other versions ---------------------------------------------------------------------


def missed(run, truth):
    """Samples taken while a compile was open that are not said to be of it, and how many there were. A thread is
    looked at when it is first seen to compile: until then only frames can tell, so nothing may be said of
    that compile, but nothing wrong either."""
    threads = samples.ByThread(run.dump.of_pid(run.target.pid))
    firsts = {row["tid"]: row["id"] for row in reversed(run.truth)}
    wrong, total, seen = [], 0, set()
    for row in sorted(truth, key=lambda row: row["end_ns"] - row["begin_ns"]):  # inner ones first
        for sample in threads.between(row["tid"], row["begin_ns"], row["end_ns"]):
            if id(sample) in seen:
                continue
            seen.add(id(sample))
            found = run.dump.compiles[sample.compile] if sample.compile >= 0 else {}
            if not found and row["id"] == firsts[row["tid"]]:
                continue
            total += 1
            if (found.get("id"), found.get("kind"), found.get("attempt")) != (
                row["id"],
                row["kind"],
                row["attempt"],
            ):
                wrong.append((row["id"], row["kind"], row["attempt"], found))
    return wrong, total


@pytest.mark.parametrize("layout", LAYOUTS)
def test_ids_attempts_and_phases_of_every_version(record, interpreter, layout):
    run = record(interpreter, "kinds", layout)
    assert run.lacks == []
    assert run.ledger["torch"] == f"{layout}.0+fake"
    assert run.keys() == keys_of(run.truth)
    agreement = run.ledger["agreement"]
    # The loop's own `attempt` is a few instructions ahead of what the context is told: a sample in
    # some thousand falls between the two.
    assert agreement["both"] > 300 and agreement["differ"] <= 1
    wrong, total = missed(run, run.truth)
    assert total > 600 and len(wrong) <= 0.005 * total, wrong[:5]
    for row, true in zip(run.rows(), run.truth, strict=True):
        assert row["thread"] == true["tid"]
        assert row["function"] == ("user_function" if row["kind"] in ("forward", "backward") else None)
        names = {phase["name"] for phase in row["torch_phases"]}
        assert set(true["phases"]) <= names, (true, names)


def test_inlined_calls_of_every_interpreter(record, interpreter):
    """The watchpoints lie on instructions, which each CPython keeps and counts in its own way."""
    run = record(interpreter, "inlines", "2.13")
    edges = [edge for edge in run.dump.edges if edge.kind in (samples.INLINE_BEGIN, samples.INLINE_END)]
    begun = [json.loads(edge.function)["name"] if edge.function.startswith("{") else edge.function
             for edge in edges if edge.kind == samples.INLINE_BEGIN]
    listed = (f"{edge.time_ns} {edge.kind} {edge.function} {edge.name} {edge.depth}" for edge in edges)
    assert len(edges) == 40, "\n".join(listed)
    assert begun == 10 * ["user_function", "burn"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_times_of_every_version(record, interpreter, layout):
    """By the probe on time.time_ns."""
    run = record(interpreter, "kinds", layout)
    main = run.truth[0]["tid"]
    true, ours = {}, {}
    for row in run.truth[1:]:
        if row["tid"] == main:  # all attempts of a compile
            begin, _ = true.get((row["id"], row["kind"]), (row["begin_ns"], 0))
            true[row["id"], row["kind"]] = begin, row["end_ns"]
    for row in run.rows():
        key = row["trace_id"], row["kind"]
        if key not in true:
            continue
        ours[key] = ours.get(key, 0) + row["wall_s"]
        assert row["complete"]
        # 2.6 has no phase per attempt: torch's reported state at each phase divides them.
        assert row["exact"] or (layout == "2.6" and row["kind"] == "forward")
    assert set(ours) == set(true) and len(ours) >= 2
    for key, (begin, end) in true.items():
        wall_s = (end - begin) / 1e9
        away_s = sum(run.dump.off_cpu_around_us(main, at) for at in (begin, end)) / 1e6
        assert abs(ours[key] - wall_s) <= max(2e-3, wall_s / 100) + away_s, (key, ours[key], wall_s, away_s)
    assert not {"ring_full", "edge_lost"} & {k for k, n in run.ledger["lost"].items() if n}


# ---- torch that lacks something ------------------------------------------------------------------

FRAMES = [
    "torch._dynamo.convert_frame has no function with a forward's compile id (_compile)",
]
CONTEXT = ["torch._guards has no _TLS"]


def test_renamed_frames_leave_the_thread_locals(record, interpreters):
    run = record(interpreters[-1], "no_frames")
    assert run.lacks == FRAMES
    assert run.keys() == keys_of(run.truth)
    wrong, total = missed(run, run.truth)
    assert len(wrong) <= 0.005 * total, wrong[:5]


@pytest.mark.parametrize("scenario", ("no_context", "no_phases"))
def test_without_thread_locals_frames_are_used(record, interpreters, scenario):
    """What has frames of its own is still told; an export and a capture have none."""
    run = record(interpreters[-1], scenario)
    assert run.lacks == (CONTEXT if scenario == "no_context" else [])
    framed = [row for row in run.truth if row["kind"] in ("forward", "backward")]
    assert [k for k in run.keys() if k[1] in ("forward", "backward")] == keys_of(framed)
    assert set(run.keys()) <= set(keys_of(run.truth))
    wrong, total = missed(run, framed)
    assert len(wrong) <= 0.005 * total, wrong[:5]
    if scenario == "no_context":
        assert run.ledger["agreement"]["both"] == 0


def test_without_anything_nothing_is_made_up(record, interpreters):
    run = record(interpreters[-1], "nothing")
    assert run.lacks == CONTEXT + FRAMES
    # The backward's frame is there and has its id; of all others nothing tells one.
    assert run.keys() == [("3/7", "backward", 2)]


def test_torch_absent(dynprof, spawn, interpreters, tmp_path):
    code = "print('ready', flush=True)\nwhile True: sum(range(1000))"
    target = spawn([interpreters[-1].path, "-c", code])
    out = tmp_path / "out"
    done = dynprof.run("--pid", target.pid, "-F", HERTZ, "-d", "1", "-o", out)
    assert done.rc == 0, done
    ledger = json.loads((out / "compiles.json").read_text())
    assert ledger["torch"] is None and ledger["compiles"] == []
    assert ledger["samples"] > 100 and ledger["runtime"] == ledger["samples"]
    assert lacks_of(target.pid) == []


# ---- torch that lies -----------------------------------------------------------------------------


def outside(folder):
    """Files elsewhere that a name could have led to."""
    return [path for path in (Path("/tmp"), folder.parent) if list(path.glob("*dynprof-escaped*"))]


def test_nothing_forged_is_accepted(record, interpreter, tmp_path):
    # Each way in which a CompileId was laid out, on one CPython or another.
    run = record(interpreter, "forged", LAYOUTS[interpreter.minor[1] % len(LAYOUTS)])
    ids = {row["trace_id"] for row in run.ledger["compiles"]}
    assert {"0/0", "2/0"} <= ids <= TRUE_IDS, ids
    wrong, total = missed(run, run.truth)
    assert total > 100 and len(wrong) <= 0.005 * total, wrong[:5]
    # Read, and found to be something else.
    assert run.ledger["lost"].get("torch_fault", 0) + run.ledger["lost"].get("torch_stale", 0) > 0
    assert not outside(tmp_path)
    # The other verbs read the same objects.
    runner = support.Dynprof(tmp_path)
    try:
        for verb in ("dump", "compiles"):
            done = runner.run(verb, "-p", run.target.pid, "--json", timeout=20)
            assert done.rc == 0, done
            json.loads(done.out)
    finally:
        runner.close()


def test_a_compiled_function_with_a_hostile_name(dynprof, record, interpreter, tmp_path):
    run = record(interpreter, "hostile")
    assert run.keys() == keys_of(run.truth)
    rows = run.rows()
    assert all("dynprof-escaped" in row["function"] for row in rows)
    assert all("\x1b" in row["function"] for row in rows)  # the name as it is; JSON escapes it
    files = [path.relative_to(run.out) for path in run.out.rglob("*")]
    for path in files:
        assert re.fullmatch(r"[A-Za-z0-9_.+=,@!/-]{1,200}", str(path)), path
    assert any(path.name == "_compile_inner_0_0.profile" for path in files)
    assert not outside(tmp_path)
    report = (run.out / "report.txt").read_text()
    for text in (report, run.done.out, run.done.err):
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", text)
        assert not re.search(r"^\s*99\.99% fake row", text, re.M)
    assert max(map(len, report.splitlines())) <= 400
    exported = dynprof.run("export", run.out, "-f", "chrome", "-o", tmp_path / "trace.json")
    assert exported.rc == 0, exported
    json.loads((tmp_path / "trace.json").read_bytes())
