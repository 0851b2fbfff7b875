"""Runs in the guest: every step of `make kernels`, a line `RESULT {json}` for each. Emulated, everything is some
twenty times slower than on a machine: nothing is judged by its speed."""

import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

PROGRAM = "/usr/bin/dynprof-bpf"
# docs/security.md: everything but what reads foreign files and starts commands.
CAPABILITIES = {
    "BPF": 39, "PERFMON": 38, "SYS_PTRACE": 19, "DAC_READ_SEARCH": 2, "CHECKPOINT_RESTORE": 40, "SYSLOG": 34,
}
SYS_ADMIN = 21
PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
INLINED = 20  # of compiles.py
NATIVE_FRAME = 1  # FrameKind
INLINE_BEGIN = 5  # EdgeKind

SPIN = """
import os, time
def leaf(n):
    return sum(i * i for i in range(n))
def outer(n):
    return leaf(n) + sum(sorted(range(n)))
print("ready", flush=True)
while True:
    outer(2000)
    time.sleep(0.001)
"""


class Target:
    def __init__(self, *argv):
        # The compiles of a job take long enough for a collector that is emulated, too.
        self.process = subprocess.Popen(
            ["python3.11", *argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "FAKE_TORCH_SECONDS": "0.6"},
        )
        self.line("ready")

    def line(self, begin):
        for line in self.process.stdout:
            if line.startswith(begin):
                return line
        raise AssertionError(f"the target ended before it said {begin}")

    def go(self):
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def kill(self):
        self.process.kill()
        self.process.wait()


def only(capabilities):
    """In the child: no right but these, nor any way to get one back."""

    def drop():
        libc = ctypes.CDLL(None)
        for number in range(64):
            if number not in capabilities:
                libc.prctl(24, number, 0, 0, 0)  # PR_CAPBSET_DROP

    return drop


def record(target, name, *options, rights=None, while_it_runs=None):
    out = Path("/tmp") / name
    target_options = [] if "--all" in options else ["-p", target.process.pid]
    argv = [PROGRAM, "record", *target_options, "-o", out, *options]
    run = subprocess.Popen(
        [str(a) for a in argv], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        preexec_fn=only(rights) if rights else None,
    )
    said = []
    for line in run.stderr:
        said.append(line)
        if line.startswith("Sampling"):
            break
    if run.poll() is None and while_it_runs:
        while_it_runs()
        time.sleep(1)
        run.send_signal(signal.SIGINT)
    rest = run.communicate(timeout=300)[1]
    return out, run.returncode, "".join(said) + rest


def dump_of(out):
    done = subprocess.run(["./sample_dump", out / "recording.dynprof"], capture_output=True, check=True)
    return json.loads(done.stdout)


def kinds_of_stacks(dump):
    """{stack: kinds of its frames}"""
    kinds = {0: frozenset()}
    for number, (caller, frame) in enumerate(dump["stacks"]):
        if number:
            kinds[number] = kinds.get(caller, frozenset()) | {dump["frames"][frame][4]}
    return kinds


def check_spin(out, said, native=True, python=True):
    dump = dump_of(out)
    functions = {frame[0] for frame in dump["frames"]}
    # Of some 500: an emulated CPU gets what the host's other work leaves, and loses the timers of the rest.
    assert len(dump["samples"]) > 20, f"{len(dump['samples'])} samples\n{said}"
    if python:
        assert {"leaf", "outer"} <= functions, functions
    kinds = kinds_of_stacks(dump)
    with_native = [sample for sample in dump["samples"] if NATIVE_FRAME in kinds[sample[3]]]
    early = [s for s in dump["samples"] if s[0] < dump["meta"]["start_ns"] + 1_500_000_000]
    early_native = [s for s in early if NATIVE_FRAME in kinds[s[3]]]
    if native:
        counts = f"native in the first 1.5 s: {len(early_native)} of {len(early)}"
        assert early and len(early_native) > 0.8 * len(early), counts
    else:
        # A sample without a Python frame, which a busy host has now and then, says at least where the thread was.
        stacks = [sample for sample in with_native if dump["stacks"][sample[3]][0] != 0]
        assert not stacks, f"{len(stacks)} of {len(dump['samples'])} with native stacks\n{said}"
        assert len(with_native) < 0.1 * len(dump["samples"]), f"{len(with_native)} of {len(dump['samples'])}"
    lost = {key: value for key, value in json.loads((out / "compiles.json").read_text())["lost"].items() if value}
    return f"{len(dump['samples'])} samples, {len(with_native)} with native frames, {len(dump['waits'])} waits; {lost}"


def spin(name, *options, rights=None, **expected):
    target = Target("-c", SPIN)
    try:
        out, status, said = record(target, name, "-d", "5s", *options, rights=rights)
        assert status == 0, said
        notes = [line.strip() for line in said.splitlines() if "note:" in line]
        return check_spin(out, said, **expected) + "".join(f"; {note}" for note in notes)
    finally:
        target.kill()


def described(ledger):
    keys = ("trace_id", "kind", "attempt", "start_ns", "wall_s", "exact", "complete", "samples", "thread")
    return "\n".join(str([row[key] for key in keys]) for row in ledger["compiles"])


def compiles(name, scenario, *options, rights=None, exact=True, inlined=0):
    target = Target("fake_torch/compiles.py", scenario)
    truth = []

    def compile_all():
        target.go()
        truth.extend(json.loads(target.line("done").split(None, 1)[1]))

    try:
        out, status, said = record(target, name, "-F", "199", *options, rights=rights, while_it_runs=compile_all)
        assert status == 0, said
        ledger = json.loads((out / "compiles.json").read_text())
        rows = [(row["trace_id"], row["kind"], row["attempt"]) for row in ledger["compiles"]]
        told = [(row["id"], row["kind"], row["attempt"]) for row in truth]
        if exact:
            assert sorted(rows) == sorted(told), f"{described(ledger)}\nnot {told}\n{said}"
            vague = [row["trace_id"] for row in ledger["compiles"] if not (row["exact"] and row["complete"])]
            assert not vague, f"not exact: {vague}\n{said}"
        else:
            assert {row[0] for row in rows} & {row[0] for row in told}, f"{rows}\nnot {told}\n{said}"
        edges = [edge for edge in dump_of(out)["edges"] if edge[3] == INLINE_BEGIN]
        # The first may come before its thread is watched.
        assert len(edges) >= 0.9 * inlined, f"{len(edges)} of {inlined} inlined calls\n{said}"
        notes = [line.strip() for line in said.splitlines() if "note:" in line]
        return f"{len(rows)} compiles, {len(edges)} inlined calls" + "".join(f"; {note}" for note in notes)
    finally:
        target.kill()


def load():
    done = subprocess.run(["./bpf_load", "budget.txt"], capture_output=True, text=True)
    counts = [
        (int(found.group(2)), found.group(1))
        for found in re.finditer(r"^(\S+) +(\d+) verified", done.stdout, re.M)
    ]
    refused = [line for line in done.stdout.splitlines() if line.endswith("FAILED")]
    assert done.returncode == 0, "\n".join((*refused, done.stdout[-6000:], done.stderr[-3000:]))
    return f"{done.stdout.strip().splitlines()[-1]}; the largest: {max(counts)[1]}, {max(counts)[0]} instructions"


def live():
    target = Target("-c", SPIN)
    try:
        done = subprocess.run([PROGRAM, "dump", "-p", str(target.process.pid)], capture_output=True, text=True)
        assert done.returncode == 0 and "<module>" in done.stdout, done.stdout + done.stderr
        return "dump"
    finally:
        target.kill()


def refused():
    """On a kernel that lacks what is needed: one sentence that names it, and a status."""
    target = Target("-c", SPIN)
    try:
        _, status, said = record(target, "refused", "-d", "2s")
        lines = said.strip().splitlines()
        assert status not in (0, None) and status > 0, said
        assert len(lines) == 2 and lines[0].startswith("error: ") and lines[1].startswith("hint: "), said
        return lines[0]
    finally:
        target.kill()


DOCUMENTED = set(CAPABILITIES.values())
STEPS = {
    "load": load,
    "python, everything on": lambda: spin("spin"),
    "compiles, everything on": lambda: compiles("kinds", "kinds"),
    "inlined calls, everything on": lambda: compiles("inlines", "inlines", inlined=INLINED),
    "--no-native": lambda: spin("nonative", "--no-native", native=False),
    "--no-off-cpu": lambda: spin("nooffcpu", "--no-off-cpu"),
    "--no-direct-map": lambda: spin("nodirect", "--no-direct-map"),
    "--no-watchpoints": lambda: compiles("nowatch", "kinds", "--no-watchpoints"),
    "--passive": lambda: compiles("passive", "kinds", "--passive", exact=False),
    "--all": lambda: compiles("all", "kinds", "--all"),
    "capabilities of docs/security.md": lambda: spin("caps", rights=DOCUMENTED | {SYS_ADMIN}),
    "the same without CAP_SYS_ADMIN, paranoid 2": lambda: at_paranoid(2, lambda: spin("noadmin", rights=DOCUMENTED)),
    "inlined calls at paranoid 2": lambda: at_paranoid(2, lambda: compiles("p2", "inlines", inlined=INLINED)),
    "dump": live,
}
REFUSED = {"refused in one sentence": refused}


def at_paranoid(level, step):
    before = PARANOID.read_text()
    PARANOID.write_text(f"{level}\n")
    try:
        return step()
    finally:
        PARANOID.write_text(before)


def main():
    words = dict(word.split("=", 1) for word in Path("/proc/cmdline").read_text().split() if "=" in word)
    print("KERNEL", os.uname().release, "paranoid", PARANOID.read_text().strip(), flush=True)
    steps = REFUSED if words.get("steps") == "refused" else STEPS
    wanted = words.get("only", "").split(",") if words.get("only") else range(len(steps))
    for number, (name, step) in enumerate(steps.items()):
        if number not in map(int, wanted):
            continue
        began = time.monotonic()
        try:
            result = {"passed": True, "text": step()}
        except Exception as problem:  # whatever it is: the next step is run
            result = {"passed": False, "text": f"{type(problem).__name__}: {problem}"}
        result |= {"step": name, "seconds": round(time.monotonic() - began, 1)}
        print("RESULT", json.dumps(result), flush=True)
        for made in Path("/tmp").iterdir():
            if made.is_dir():
                shutil.rmtree(made, ignore_errors=True)
    print("END", flush=True)


if __name__ == "__main__":
    sys.exit(main())
