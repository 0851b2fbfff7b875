"""Stacks against the truth: programs/known_stacks.py knows its own stack all through its phases.

At 999 Hz, on every CPython found, at least 99.9 % of the samples that fall into a phase must show
exactly the true stack: every function, every file, every caller's line; the leaf's line within its
loop. A frame that says it is unreadable counts as not exact, unless a CPU stood still at that time; a frame
with another's name is never allowed, not one.
"""

import collections
import json

import pytest

import samples
import stalls
import support

pytestmark = [pytest.mark.root_bpf, pytest.mark.pythons(last="3.15")]

PROGRAM = support.REPO / "tests" / "programs" / "known_stacks.py"
HERTZ = 999
EXACT = 0.999
# Deeper than the walker goes (bpf/limits.h): judged by test_deeper_than_the_limit alone.
MAX_FRAMES = 1024
TRUNCATED_PHASES = {"depth_2500"}
# Code that lives 3 ms may be gone before it can be read. Then it has no name; never a wrong one.
SHORT_LIVED_PHASES = {"reuse_many"}


class Recorded:
    """One run of the program: its own log, and each phase's samples."""

    def __init__(self, interpreter, truth, dump, stood_still):
        self.interpreter = interpreter
        self.dump = dump
        threads = samples.ByThread(dump.of_pid(truth["pid"]))
        first = min(sample.time_ns for sample in dump.of_pid(truth["pid"]))
        self.windows = [entry for entry in truth["phases"] if entry["begin"] >= first]
        assert len(self.windows) > 0.95 * len(truth["phases"]), "sampling began too late"
        self.taken = [
            threads.between(entry["tid"], entry["begin"], entry["end"]) for entry in self.windows
        ]
        self.stood_still = [
            stood_still.during(entry["begin"], entry["end"]) for entry in self.windows
        ]
        assert sum(self.stood_still) < 0.2 * len(self.windows), stood_still.times

    def phases(self, undisturbed=False):
        """{phase: [(entry, sample), ...]}, of all windows or of those in which no CPU stood still."""
        by_phase = collections.defaultdict(list)
        windows = zip(self.windows, self.taken, self.stood_still, strict=True)
        for entry, taken, stood_still in windows:
            if undisturbed and stood_still:
                continue
            by_phase[entry["phase"]] += [(entry, sample) for sample in taken]
        return by_phase


_recorded = {}


@pytest.fixture
def recorded(interpreter, dynprof, spawn, tmp_path_factory):
    if interpreter not in _recorded:
        folder = tmp_path_factory.mktemp("stacks")
        target = spawn([interpreter.path, PROGRAM, folder / "truth.json", "--seconds", "0.2"])
        run = samples.start_recording(dynprof, folder / "out", "-p", target.pid, hertz=HERTZ)
        with stalls.watch() as stood_still:
            target.send("go")
            target.wait_for("^done", timeout=180)
        assert target.wait() == 0
        done = run.wait()
        assert done.rc == 0, done
        truth = json.loads((folder / "truth.json").read_text())
        dump = samples.Dump(folder / "out" / "recording.dynprof")
        _recorded[interpreter] = Recorded(interpreter, truth, dump, stood_still)
    return _recorded[interpreter]


def judge(entry, frames, whole=True):
    """'exact', 'unreadable', 'wrong line' or 'wrong': what became of the true stack. With
    whole=False the root side may be missing."""
    true_stack = entry["stack"] if whole else entry["stack"][-len(frames) :]
    if len(frames) != len(true_stack):
        return "wrong"
    unreadable = wrong_line = False
    for depth, (frame, (function, file, line)) in enumerate(zip(frames, true_stack, strict=True)):
        if frame.unreadable:
            unreadable = True
        elif (frame.function, frame.file) != (function, file):
            return "wrong"
        elif depth + 1 == len(frames):
            low, high = entry["leaf_lines"]
            wrong_line |= not low <= frame.line <= high
        else:
            wrong_line |= frame.line != line
    return "unreadable" if unreadable else "wrong line" if wrong_line else "exact"


def first_difference(entry, frames):
    for depth, (function, file, line) in enumerate(entry["stack"]):
        if depth >= len(frames):
            return f"only {len(frames)} of {len(entry['stack'])} frames"
        frame = frames[depth]
        if (frame.function, frame.file) != (function, file) or (
            depth + 1 < len(entry["stack"]) and frame.line != line
        ):
            return (
                f"frame {depth} of {len(entry['stack'])} is"
                f" {frame.function} {frame.file}:{frame.line}, should be {function} {file}:{line}"
            )
    return f"{len(frames)} frames instead of {len(entry['stack'])}, or the leaf's line"


def tally(recorded, undisturbed=False):
    """{phase: Counter of verdicts}, and one example of each bad verdict of a phase."""
    verdicts, examples = {}, {}
    for phase, pairs in recorded.phases(undisturbed).items():
        if phase in TRUNCATED_PHASES | {"transitions"}:
            continue
        counter = verdicts[phase] = collections.Counter()
        for entry, sample in pairs:
            frames = recorded.dump.stack(sample.stack)
            verdict = judge(entry, frames)
            # A page that the kernel is moving cannot be read: the stack is cut at its root, and says so.
            if verdict == "wrong" and sample.flags & samples.FRAME_FAULT:
                if judge(entry, frames, whole=False) != "wrong":
                    verdict = "cut"
            counter[verdict] += 1
            if verdict not in ("exact", "unreadable", "cut"):
                examples.setdefault((phase, verdict), first_difference(entry, frames))
    return verdicts, examples


def describe(verdicts, examples):
    lines = [f"  {phase}: {dict(counter)}" for phase, counter in verdicts.items()]
    lines += [f"  e.g. {phase}, {verdict}: {text}" for (phase, verdict), text in examples.items()]
    return "\n".join(lines)


def test_every_phase_was_sampled(recorded):
    """Nothing below means anything without samples: as many as the thread's own CPU time says."""
    expected, taken = collections.Counter(), collections.Counter()
    windows = zip(recorded.windows, recorded.taken, recorded.stood_still, strict=True)
    for entry, found, stood_still in windows:
        if stood_still:
            continue
        expected[entry["phase"]] += entry["cpu_ns"] * HERTZ / 1e9
        taken[entry["phase"]] += len(found)
    short = {
        phase: f"{taken[phase]} of {count:.0f}"
        for phase, count in expected.items()
        if taken[phase] < 0.5 * count
    }
    assert not short
    assert sum(taken.values()) >= 0.9 * sum(expected.values())
    assert recorded.dump.counter("ring_full") == 0


def test_stacks_are_exact(recorded, record_property):
    verdicts, examples = tally(recorded, undisturbed=True)
    total = collections.Counter()
    for phase, counter in verdicts.items():
        if phase not in SHORT_LIVED_PHASES:
            total += counter
    record_property("verdicts", dict(total))
    assert total["exact"] >= EXACT * total.total(), "\n" + describe(verdicts, examples)


# Before CPython 3.12 a frame's identity is made of addresses alone. Where code objects of one shape are made and
# freed every few milliseconds without end, now and then one comes back with every one of its predecessor's
# addresses, and has its name: docs/concepts/python-stacks.md, "Names". Nowhere else.
KNOWN_COLLISIONS = {"reuse_many": 0.01}


def test_no_frame_has_a_wrong_name(recorded):
    verdicts, examples = tally(recorded)
    collisions = KNOWN_COLLISIONS if recorded.interpreter.version < (3, 12) else {}
    wrong = {
        phase: counter
        for phase, counter in verdicts.items()
        if counter["wrong"] > collisions.get(phase, 0) * counter.total()
    }
    assert not wrong, "\n" + describe(wrong, examples)


def test_no_frame_has_a_wrong_line(recorded):
    verdicts, examples = tally(recorded)
    wrong = {phase: counter for phase, counter in verdicts.items() if counter["wrong line"]}
    assert not wrong, "\n" + describe(wrong, examples)


def test_stacks_between_calls_are_possible_ones(recorded):
    """While frames are entered and left at full speed, 10 million times a second: a stack that does not
    say it is cut is a possible one. Some are cut: what an eval loop has not stored yet leads nowhere."""
    verdicts, examples = collections.Counter(), []
    for entry, sample in recorded.phases()["transitions"]:
        frames = recorded.dump.stack(sample.stack)
        possible = [frame.function for frame in frames] in entry["stacks"]
        cut = not possible and sample.flags & samples.FRAME_FAULT
        verdicts["possible" if possible else "cut" if cut else "not"] += 1
        if not possible:
            shown = [frame.function for frame in frames[-4:]]
            examples.append(f"{len(frames)} frames, {shown}, flags {sample.flags}")
    total = verdicts.total()
    assert total > 1000
    assert verdicts["not"] <= (1 - EXACT) * total, f"{verdicts}: {examples[:8]}"
    assert verdicts["cut"] <= 0.005 * total, f"{verdicts}: {examples[:8]}"


def test_reused_addresses_were_met(recorded):
    """The reuse phases prove something only where addresses did come round again."""
    for phase in ("reuse_by_name", "reuse_by_file"):
        windows = [entry for entry in recorded.windows if entry["phase"] == phase]
        reused = sum(entry["reused"] for entry in windows)
        assert reused >= 20, f"{phase}: {reused} of {len(windows)} code objects had a used address"


def test_deeper_than_the_limit(recorded):
    """Beyond the limit a stack is cut at its root, says so, and is right where it is not cut."""
    pairs = recorded.phases()["depth_2500"]
    verdicts = collections.Counter()
    for entry, sample in pairs:
        frames = recorded.dump.stack(sample.stack)
        assert len(frames) >= MAX_FRAMES, f"{len(frames)} frames"
        assert sample.flags & samples.TRUNCATED
        verdicts[judge(entry, frames, whole=False)] += 1
    assert verdicts["exact"] >= EXACT * verdicts.total(), verdicts
    assert recorded.dump.counter("truncated") >= len(pairs)


def test_only_deep_stacks_are_called_truncated(recorded):
    for phase, pairs in recorded.phases().items():
        if phase not in TRUNCATED_PHASES:
            cut = [sample for _, sample in pairs if sample.flags & samples.TRUNCATED]
            assert not cut, f"{phase}: {len(cut)} of {len(pairs)} samples"
