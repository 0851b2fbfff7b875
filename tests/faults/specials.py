"""Faults that are made once each: what the target, the kernel, the disk and the limits can do to a recording.
A function of the table gets a Case; an AssertionError is a failure of ours, unless the target was harmed.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import support
from control_groups import Frozen, Killable, Skip
from job import NATIVE, python
from leftovers import our_program_names
from pool import GOOD, wait_until
from results import Row

SHIM = NATIVE / "refuse.so"
LIMIT_S = 90


class Case:
    """One target, and dynprof-bpf on it."""

    def __init__(self, lab, folder):
        self.lab = lab
        self.folder = Path(folder)
        self.folder.mkdir(parents=True)
        self.target, self.snapshot = lab.standing_target()
        self.target.tell("go")
        self.out = self.folder / "out"
        self.expected = GOOD
        self.same_process = True  # still the program that the snapshot is of

    def record(self, seconds=1.0, out=None, hertz=499, **options):
        milliseconds = f"{round(seconds * 1000)}ms"
        return self.lab.start(
            "record", "-p", self.target.pid, "-F", hertz, "-d", milliseconds,
            "-o", out or self.out, **options,
        )  # fmt: skip

    def wrapped(self, wrapper, *arguments):
        """dynprof-bpf under another program."""
        argv = [*wrapper, self.lab.binary, *arguments]
        return support.Running(argv, self.folder, env=self.lab.env).wait(LIMIT_S)

    def refuses(self, done):
        assert done.rc == 1 and "error: " in done.err and "hint: " in done.err, f"{done}"

    def works_or_refuses(self, done):
        if done.rc != 0:
            self.refuses(done)

    def reads(self, out=None, *options):
        read = self.lab.run("report", out or self.out, *options, timeout=LIMIT_S)
        assert read.rc == 0, f"{read}"
        return read.out + read.err


def sampling(running):
    running.wait_for_err(r"(?m)^Sampling ", timeout=60)
    time.sleep(0.3)


def finished(running, status=0):
    done = running.wait(LIMIT_S)
    assert done.rc == status, f"{done}"
    return done


# ---- what a target does --------------------------------------------------------------------------


def exec_while_recorded(case):
    running = case.record(seconds=3)
    sampling(running)
    case.target.tell("exec")
    case.same_process = False
    finished(running)
    case.reads()


def exec_while_read(case):
    case.same_process = False
    runs = [case.lab.start(verb, "-p", case.target.pid) for verb in ("dump", "compiles", "dump")]
    case.target.tell("exec")
    for run in runs:
        case.works_or_refuses(run.wait(LIMIT_S))


def setuid_while_recorded(case):
    running = case.record(seconds=2)
    sampling(running)
    case.target.tell("setuid")
    finished(running)
    case.reads()
    for verb in ("dump", "compiles"):
        finished(case.lab.start(verb, "-p", case.target.pid))


def stopped_for_longer_than_the_recording(case):
    case.target.signal(signal.SIGSTOP)
    try:
        finished(case.record(seconds=1))
        for verb in ("dump", "compiles"):
            finished(case.lab.start(verb, "-p", case.target.pid))
    finally:
        case.target.signal(signal.SIGCONT)
    case.reads()


def process_with_pid(pid):
    """A new process with this id, computing; None: the kernel does not give it."""

    class Arguments(ctypes.Structure):
        _fields_ = [(name, ctypes.c_uint64) for name in (
            "flags", "pidfd", "child_tid", "parent_tid", "exit_signal", "stack", "stack_size", "tls",
            "set_tid", "set_tid_size", "cgroup",
        )]  # fmt: skip

    wanted = ctypes.c_int32(pid)
    arguments = Arguments(
        exit_signal=signal.SIGCHLD, set_tid=ctypes.addressof(wanted), set_tid_size=1
    )
    program = [b"/bin/sh", b"-c", b"while :; do :; done", None]
    argv = (ctypes.c_char_p * len(program))(*program)
    libc = ctypes.PyDLL(None, use_errno=True)
    clone3 = 435
    made = libc.syscall(clone3, ctypes.byref(arguments), ctypes.sizeof(arguments))
    if made == 0:  # as little Python as can be: it is a fork that Python does not know of
        libc.execv(program[0], argv)
        libc._exit(127)
    return made if made == pid else None


def pid_reused_while_recorded(case):
    """Two targets; the id of one becomes another process' while the recording goes on."""
    other = case.lab.pool.target()
    other.tell("go")
    running = case.lab.start(
        "record",
        "-p",
        f"{case.target.pid},{other.pid}",
        "-F",
        "499",
        "-d",
        "3s",
        "-o",
        case.out,
    )
    sampling(running)
    other.kill()
    wait_until(lambda: not Path(f"/proc/{other.pid}").exists(), "the process is gone")
    reused = process_with_pid(other.pid)
    try:
        finished(running)
        if reused is None:
            raise Skip("clone3 does not give a chosen process id here")
        for verb in ("dump", "compiles"):
            case.refuses(case.lab.run(verb, "-p", reused))
        os.kill(reused, 0)
    finally:
        if reused:
            os.kill(reused, signal.SIGKILL)
            os.waitpid(reused, 0)
    case.reads()


def launched_command_outlives_the_profiler(case):
    """`record -- CMD`: the profiler is killed, the command goes on to its end."""
    finished_file = case.folder / "finished"
    program = (
        "import time\n"
        "end = time.monotonic() + 4\n"
        "while time.monotonic() < end: sum(range(10000))\n"
        f"open({str(finished_file)!r}, 'w').close()\n"
    )
    running = case.lab.start("record", "-o", case.out, "--", python(), "-c", program)
    sampling(running)
    running.kill()
    wait_until(finished_file.exists, "the command comes to its end")


# ---- what a machine does -------------------------------------------------------------------------


def frozen_while_recorded(case):
    group = Frozen(case.target.pid)
    try:
        running = case.record(seconds=2)
        sampling(running)
        group.freeze()
        finished(running)
        for verb in ("dump", "compiles"):
            finished(case.lab.start(verb, "-p", case.target.pid))
        # Attaching to a process that is frozen.
        again = case.record(seconds=1, out=case.folder / "again")
        finished(again)
    finally:
        group.remove()
    case.reads()


def group_killed_while_recorded(case):
    """A service that is ended, or a group that is out of memory: all its processes at once."""
    for number in range(4):
        group = Killable()
        try:
            with group.entered():
                running = case.record(seconds=LIMIT_S, out=case.folder / f"killed-{number}")
            sampling(running)
            time.sleep(1.2)  # until the first flush
            names = [Path(f"/proc/{pid}/comm").read_text().strip() for pid in group.pids()]
            assert "dynprof-bpf" in names, names
            assert "fd-closer" not in names, "what closes the probes is killed with the rest"
            group.kill()
            finished(running, -signal.SIGKILL)
        finally:
            group.remove()
        case.reads(case.folder / f"killed-{number}")


def clock_steps(case):
    """The profiler's clock of the day jumps by days at each look; the machine's own stays as it is."""
    done = finished(case.record(env={"LD_PRELOAD": str(SHIM), "FAULTS_REFUSE": "clock"}))
    assert "Captured" in done.err, f"{done}"
    case.reads()


class Mounted:
    def __init__(self, folder, options):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True)
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", self.folder],
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise Skip(f"no tmpfs can be mounted: {done.stderr.strip()}")

    def __enter__(self):
        return self.folder

    def __exit__(self, *_):
        subprocess.run(["umount", self.folder], check=True)


def disk_full(case):
    """There is room for a part of the recording only."""
    with Mounted(case.folder / "disk", "size=512k") as disk:
        (disk / "filled").write_bytes(bytes(300 << 10))
        done = case.record(hertz=4999, seconds=20, out=disk / "out").wait(LIMIT_S)
        case.refuses(done)
        assert "No space left" in done.err, f"{done}"
        case.reads(disk / "out")


def disk_full_at_the_outputs(case):
    """The recording fits; what is made from it does not."""
    finished(case.record())
    size = (case.out / "recording.dynprof").stat().st_size
    with Mounted(case.folder / "disk", f"size={(size // 4096 + 12) * 4}k") as disk:
        done = case.record(out=disk / "out").wait(LIMIT_S)
        case.works_or_refuses(done)
        case.reads(disk / "out")


def output_read_only(case):
    with Mounted(case.folder / "disk", "ro") as disk:
        done = case.record(out=disk / "out").wait(LIMIT_S)
        case.refuses(done)
        assert "ead-only" in done.err, f"{done}"


def output_removed(case):
    """The directory goes away while it is recorded into."""
    running = case.record(seconds=2)
    sampling(running)
    shutil.rmtree(case.out)
    case.works_or_refuses(running.wait(LIMIT_S))


def ring_overflows(case):
    """The profiler gets no CPU while deep stacks come in."""
    case.target.tell("deep")
    running = case.record(seconds=12)
    sampling(running)
    running.signal(signal.SIGSTOP)
    time.sleep(8)
    running.signal(signal.SIGCONT)
    done = finished(running)
    text = case.reads(case.out, "--losses")
    assert (
        "ring buffer was full" in text
    ), f"nothing was lost, or nothing is said of it\n{done}\n{text[:3000]}"


def few_descriptors(case):
    limited = ["prlimit", "--nofile=64:64"]
    done = case.wrapped(
        limited, "record", "-p", case.target.pid, "-d", "1s", "-o", case.out
    )
    case.works_or_refuses(done)
    if done.rc == 0:
        case.reads()
    for verb in ("dump", "compiles"):
        case.works_or_refuses(case.wrapped(limited, verb, "-p", case.target.pid))


def few_descriptors_to_begin_with(case):
    """A soft limit alone is raised."""
    done = case.wrapped(
        ["prlimit", "--nofile=64:4096"],
        "record", "-p", case.target.pid, "-d", "1s", "-o", case.out,
    )  # fmt: skip
    assert done.rc == 0, f"{done}"
    case.reads()


def output_closed(case):
    """`| head -1`, and a full device."""
    record = f"{case.lab.binary} record -p {case.target.pid} -d 2s -v -o {case.out}"
    command = f"{record} 2>&1 | head -1; exit ${{PIPESTATUS[0]}}"
    done = support.Running(["bash", "-c", command], case.folder, env=case.lab.env).wait(LIMIT_S)
    assert done.rc in (0, 1), f"{done}"
    case.reads()
    command = f"exec {case.lab.binary} report {case.out} > /dev/full"
    done = support.Running(["bash", "-c", command], case.folder, env=case.lab.env).wait(LIMIT_S)
    assert done.rc == 1, f"{done}"


# ---- what the kernel refuses ---------------------------------------------------------------------


def under_shim(case, refuse, number):
    done = case.record(
        seconds=0.4,
        out=case.folder / f"out-{number}",
        env={"LD_PRELOAD": str(SHIM), "FAULTS_REFUSE": refuse},
    ).wait(LIMIT_S)
    assert done.rc in (0, 1), f"{refuse}: {done}"
    try:
        case.works_or_refuses(done)
        if done.rc == 0:
            case.reads(case.folder / f"out-{number}")
    except AssertionError as problem:
        raise AssertionError(f"{refuse}: {problem}") from None
    if found := case.lab.left.found():
        raise AssertionError(f"{refuse}: left behind: {found}")


def every(items, share):
    """All of them in the long form, a few in the short one, others each time."""
    items = sorted(items)
    return items if share == 1 else items[int(time.time()) % share :: share]


def programs_refused(share):
    def refuse(case):
        for number, name in enumerate(every(our_program_names(), share)):
            under_shim(case, f"program:{name}", number)

    return refuse


def kernel_objects_refused(share):
    """Each BPF link, map and perf event."""

    def refuse(case):
        counts = case.folder / "counts"
        env = {"LD_PRELOAD": str(SHIM), "FAULTS_COUNTS": str(counts)}
        finished(case.record(seconds=0.4, out=case.folder / "counted", env=env))
        made = dict(zip(("link", "map", "perf"), map(int, counts.read_text().split()), strict=True))
        assert all(made.values()), f"the shim counts nothing: {made}"
        wanted = [
            f"{kind}:{n}" for kind, count in made.items() for n in range(1, min(count, 60) + 1)
        ]
        for number, what in enumerate(every(wanted, share)):
            under_shim(case, what, number)

    return refuse


def table(short):
    return (
        ("exec while recorded", exec_while_recorded),
        ("exec while read", exec_while_read),
        ("setuid", setuid_while_recorded),
        ("stopped target", stopped_for_longer_than_the_recording),
        ("launched command", launched_command_outlives_the_profiler),
        ("pid reuse", pid_reused_while_recorded),
        ("frozen cgroup", frozen_while_recorded),
        ("killed cgroup", group_killed_while_recorded),
        ("clock steps", clock_steps),
        ("full disk", disk_full),
        ("full disk at the outputs", disk_full_at_the_outputs),
        ("read-only output", output_read_only),
        ("removed output", output_removed),
        ("full ring", ring_overflows),
        ("64 descriptors", few_descriptors),
        ("64 descriptors, soft", few_descriptors_to_begin_with),
        ("closed output", output_closed),
        ("BPF programs refused", programs_refused(16 if short else 1)),
        ("BPF objects, events refused", kernel_objects_refused(20 if short else 1)),
    )


def run(name, function, lab):
    row = Row(f"fault: {name}", 1)
    began = time.monotonic()
    case = Case(lab, lab.folder / name.replace(" ", "-").replace(",", ""))
    try:
        function(case)
    except Skip as reason:
        row.note = f"skipped: {reason}"
    except AssertionError as problem:
        row.fail(str(problem))
    finally:
        check_target(case, row)
        row.seconds = time.monotonic() - began
    return row


def check_target(case, row):
    try:
        if case.same_process and case.target.status is None:
            case.target.quiet()
            left = case.lab.left.found(case.snapshot)
            case.target.tell("go")
        else:
            left = case.lab.left.found()
        for thing in left:
            row.fail(f"left behind: {thing}")
    except AssertionError as problem:
        row.harm(str(problem))
    outcome = case.target.end()
    if outcome != case.expected:
        row.harm(f"{outcome}\n{case.target.err[-2000:]}")
