"""Merged stacks against the truth: programs/known_native.py knows its native frames from the C
library's own unwinder, and the turns that Python and native code take from how it is written.

At 999 Hz, on every CPython found, at least 99.5 % of the samples of a phase must show exactly the true
stack: every native frame at its address in its file, Python frames in between where they belong, the
interpreter loop itself hidden. A stack that is cut must say so.
"""

import collections
import json
import subprocess

import pytest

import samples
import support

pytestmark = [pytest.mark.root_bpf, pytest.mark.pythons(last="3.15")]

PROGRAM = support.REPO / "tests" / "programs" / "known_native.py"
LIBRARY = support.REPO / "tests" / "programs" / "native" / "deep_calls.cpp"
HERTZ = 999
EXACT = 0.995
# What asking the clock, and for a thread-local, puts on top of leaf().
CLOCK_OBJECTS = ("[vdso]", "libc.so.6", "libc-2", "ld-linux", "deep_calls")


@pytest.fixture(scope="session")
def libraries(tmp_path_factory):
    compiler = support.tool("g++")
    folder = tmp_path_factory.mktemp("native")
    first, later = folder / "deep_calls.so", folder / "deep_calls_later.so"
    flags = ["-O2", "-fomit-frame-pointer", "-fPIC", "-shared"]
    subprocess.run([compiler, *flags, "-o", first, LIBRARY, "-lpthread"], check=True)
    # Another file with another build-id.
    subprocess.run([compiler, *flags, "-DLATER", "-g", "-o", later, LIBRARY, "-lpthread"], check=True)
    return first, later


class Recorded:
    def __init__(self, truth, dump, pid):
        self.truth = truth
        self.dump = dump
        self.threads = samples.ByThread(dump.of_pid(pid))

    def pairs(self):
        """(entry, its sample) of all of them."""
        for entry in self.truth:
            for sample in self.threads.between(entry["tid"], entry["begin"], entry["end"]):
                yield entry, sample


def record(interpreter, dynprof, spawn, folder, libraries, *options):
    target = spawn([interpreter.path, PROGRAM, *libraries, folder / "truth.json"])
    run = samples.start_recording(dynprof, folder / "out", "-p", target.pid, *options, hertz=HERTZ)
    target.send("go")
    target.wait_for("^done", timeout=180)
    assert target.wait() == 0
    done = run.wait()
    assert done.rc == 0, done
    truth = json.loads((folder / "truth.json").read_text())
    return Recorded(truth, samples.Dump(folder / "out" / "recording.dynprof"), target.pid)


def from_leaf(frames):
    """From leaf()'s frame towards the root; None where that is not what was on top."""
    for depth, frame in enumerate(frames):
        if frame.function == "leaf" and "deep_calls" in frame.file:
            above = [frame for frame in frames[:depth] if frame.kind != samples.KERNEL_FRAME]
            known = all(
                any(name in frame.file for name in CLOCK_OBJECTS) for frame in above
            )
            return frames[depth:] if known else None
    return None


def plain(name):
    """`throws(int)` and `Cleans::~Cleans()` without what is around the name."""
    return name.split("(")[0].split("::")[-1].removesuffix(".cold")


def own_names(frames):
    """The turns that the program's own functions take."""
    return [
        frame.name if frame.kind == samples.PYTHON_FRAME else plain(frame.function)
        for frame in frames
        if frame.file.endswith("known_native.py") or "deep_calls" in frame.file
    ]


def judge(entry, sample, dump):
    if sample.flags & samples.UNMERGED:
        return "unmerged"
    if sample.flags & samples.NATIVE_CUT:
        return "cut"
    frames = from_leaf(dump.whole_stack(sample.stack))
    if frames is None:
        return "not in leaf"
    native = [frame for frame in frames[1:] if frame.kind == samples.NATIVE_FRAME]
    true_native = [
        (object_, offset)
        for (object_, offset), loop in zip(entry["native"], entry["in_eval_loop"], strict=True)
        if not loop
    ]
    if len(native) != len(true_native):
        return f"{len(native)} native frames, not {len(true_native)}"
    for frame, (object_, offset) in zip(native, true_native, strict=True):
        # What a signal interrupted is at its instruction, not behind a call.
        if frame.file != object_ or frame.offset not in (offset, offset + 1):
            return "wrong native frame"
        if frame.offset != offset and not entry["exact_above"]:
            return "wrong native address"
    if own_names(frames) != entry["merged"]:
        return "wrong order"
    return "exact"


def test_merged_stacks_are_exact(interpreter, dynprof, spawn, tmp_path, libraries, record_property):
    recorded = record(interpreter, dynprof, spawn, tmp_path, libraries)
    assert_exact(recorded, record_property)


def test_merged_stacks_are_exact_by_the_helper(
    interpreters, dynprof, spawn, tmp_path, libraries, record_property
):
    """Reading the target's memory by the kernel's helper, not where the kernel maps it (bpf/user_memory.bpf.h), is
    the same for every CPython: the newest will do."""
    newest = (support.unpacked_interpreters() or interpreters)[-1]
    recorded = record(newest, dynprof, spawn, tmp_path, libraries, "--no-direct-map")
    assert_exact(recorded, record_property)


def assert_exact(recorded, record_property):
    verdicts = collections.defaultdict(collections.Counter)
    examples = {}
    for entry, sample in recorded.pairs():
        verdict = judge(entry, sample, recorded.dump)
        verdicts[entry["phase"]][verdict] += 1
        if verdict != "exact":
            examples.setdefault((entry["phase"], verdict), (entry, sample))
    total = sum(verdicts.values(), collections.Counter())
    record_property("verdicts", dict(total))
    text = "\n".join(f"  {phase}: {dict(counter)}" for phase, counter in verdicts.items())
    for (phase, verdict), (entry, sample) in list(examples.items())[:2]:
        frames = recorded.dump.whole_stack(sample.stack)
        text += f"\n  {phase}, {verdict}:\n    seen {own_names(frames)}\n    true {entry['merged']}"
        text += f"\n    seen {[(f.file, hex(f.offset), f.function) for f in frames if f.kind == 1][:24]}"
        native = zip(entry["native"], entry["in_eval_loop"], strict=True)
        text += f"\n    true {[(o, hex(at), l) for (o, at), l in native][:24]}"
    expected = sum(entry["cpu_ns"] for entry in recorded.truth) * HERTZ / 1e9
    assert sum(total.values()) >= 0.9 * expected
    assert total["exact"] >= EXACT * sum(total.values()), text
    # Each kind of frame by itself, too: none hides behind the others' numbers.
    for counter in verdicts.values():
        assert counter["exact"] >= 0.9 * sum(counter.values()), text
    assert recorded.dump.counter("ring_full") == 0


def test_split_parts_of_the_loop(interpreter, dynprof, spawn, tmp_path):
    """Stripped builds name no parts; a third of these samples is in one of Debian's."""
    target = spawn([interpreter.path, PROGRAM.parent / "cold_parts.py"])
    target.wait_for("^ready")
    run = samples.start_recording(dynprof, tmp_path / "out", "-p", target.pid, hertz=HERTZ)
    target.send("go")
    target.wait_for("^done", timeout=60)
    assert target.wait() == 0
    assert run.wait().rc == 0
    dump = samples.Dump(tmp_path / "out" / "recording.dynprof")
    importing = [
        sample
        for sample in dump.of_pid(target.pid)
        if any(frame.name == "fails_to_import" for frame in dump.stack(sample.stack))
    ]
    assert len(importing) > 1000
    unmerged = [sample for sample in importing if sample.flags & samples.UNMERGED]
    assert len(unmerged) <= (1 - EXACT) * len(importing)


def test_without_native_frames(interpreter, dynprof, spawn, tmp_path, libraries):
    target = spawn([interpreter.path, PROGRAM, *libraries, tmp_path / "truth.json", "--seconds", "0.01"])
    run = samples.start_recording(dynprof, tmp_path / "out", "--no-native", "-p", target.pid)
    target.send("go")
    target.wait_for("^done", timeout=60)
    assert run.wait().rc == 0
    dump = samples.Dump(tmp_path / "out" / "recording.dynprof")
    for sample in dump.of_pid(target.pid):
        frames = dump.whole_stack(sample.stack)
        assert all(frame.kind == samples.PYTHON_FRAME for frame in frames) or len(frames) == 1
        assert not sample.flags & (samples.NATIVE_CUT | samples.UNMERGED)


def test_a_compile_is_unwound_to_the_start_of_its_threads(compile_run, record_property):
    """torch, Inductor's own libraries as they appear, g++ at work beside it."""
    dump = compile_run.dump
    taken = dump.of_pid(compile_run.truth["pid"])
    cut = sum(bool(sample.flags & samples.NATIVE_CUT) for sample in taken)
    unmerged = sum(bool(sample.flags & samples.UNMERGED) for sample in taken)
    causes = {
        name: count
        for name, count in dump.trailer["counters"].items()
        if name.startswith("native_") or name == "unmerged"
    }
    record_property("cut", f"{cut} and {unmerged} unmerged of {len(taken)}: {causes}")
    assert len(taken) > 1000
    assert cut <= 0.01 * len(taken), causes
    assert unmerged <= 0.001 * len(taken), causes
    objects = {
        frame.file.rsplit("/", 1)[-1]
        for sample in taken
        for frame in dump.whole_stack(sample.stack)
        if frame.kind == samples.NATIVE_FRAME
    }
    assert {"libtorch_cpu.so", "libtorch_python.so", "libc.so.6"} <= objects
