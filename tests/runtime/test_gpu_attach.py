"""`record --gpu on` of a CPython that was started without the library: it is loaded, what the job does on the fake GPU
is recorded as if it had been there from the start, and where it cannot be loaded the note says why."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import gpu_library as gpu
import samples
import support
from gpu_recording import JOB, GpuDump, assert_same, start_job, stop, tell

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "faults"))

import attach  # noqa: E402
import leftovers  # noqa: E402

pytestmark = [pytest.mark.root_bpf, pytest.mark.pythons(last="3.15")]

LOADED = r"libdynprof_cupti.so was loaded into process \d+ by "
NOT_LOADED = "libdynprof_cupti.so was not loaded into process"


def record(dynprof, directory, job, *arguments):
    return samples.start_recording(
        dynprof, directory, "--pid", job.pid, "--gpu", "on", *arguments, hertz=99
    )


def test_recorded_as_if_it_had_been_there(dynprof, spawn, tmp_path, interpreter):
    job = start_job(spawn, interpreter.path, "--polls", library=False)
    before = leftovers.Snapshot(job.pid)
    run = record(dynprof, tmp_path / "out", job)
    run.wait_for_err(LOADED)
    run.wait_for_err(r"GPU work of process \d+ is traced", timeout=30)
    for line in ("launch 20", "threads 3 15", "graph 4 5", "copy 6", "sync"):
        tell(job, line)
    done = stop(run)
    assert NOT_LOADED not in done.err
    log = tmp_path / "driver.log"
    tell(job, f"log {log}")
    assert_same(GpuDump(tmp_path / "out"), gpu.read_truth(log))
    # The library and its thread, and nothing else.
    after = leftovers.Snapshot(job.pid)
    assert leftovers.changed_code(job.pid) == []
    kernels = {"[uprobes]", "[uprobes-trampoline]"}  # pages of the kernel's for the probes of any recording
    assert after.files - before.files - kernels == {str(gpu.LIBRARY)}
    names = [path.read_text() for path in Path(f"/proc/{job.pid}/task").glob("*/comm")]
    assert names.count("dynprof-gpu\n") == 1
    assert after.descriptors == before.descriptors
    # It is there for the next recording.
    run = record(dynprof, tmp_path / "again", job)
    run.wait_for_err(r"GPU work of process \d+ is traced", timeout=30)
    tell(job, "launch 5")
    assert "was loaded" not in stop(run).err
    assert len(GpuDump(tmp_path / "again").calls) == 5
    job.send("exit")
    assert job.wait() == 0, job.text


def mappings(pid):
    """All, but for the heap, which the job itself grows, and the kernel's pages for the probes of any recording."""
    own = ("[heap]", "[uprobes]", "[uprobes-trampoline]")
    return [line for line in Path(f"/proc/{pid}/maps").read_text().splitlines() if not line.endswith(own)]


def test_main_threads_without_a_safe_point(spawn, tmp_path, wanted_interpreters):
    """Each is given five seconds, so all are recorded at once."""
    assert wanted_interpreters
    with contextlib.ExitStack() as runners, ThreadPoolExecutor() as waiting:

        def recorded(numbered):
            number, interpreter = numbered
            job = start_job(spawn, interpreter.path, library=False)  # it waits in read()
            tell(job, "launch 20")  # what the job itself maps for its first launches is there
            before = mappings(job.pid)
            folder = tmp_path / str(number)
            folder.mkdir()
            runner = support.Dynprof(folder)
            runners.callback(runner.close)
            run = record(runner, folder / "out", job)
            run.wait_for_err("uses CUDA without libdynprof_cupti.so", timeout=60)
            tell(job, "launch 20")
            return job, before, folder / "out", stop(run)

        for job, before, out, done in waiting.map(recorded, enumerate(wanted_interpreters)):
            assert NOT_LOADED in done.err and "ran no Python code for 5000 ms" in done.err, done
            assert len(GpuDump(out).calls) == 20
            inside = Path(f"/proc/{job.pid}/maps").read_text()
            assert "libdynprof_cupti" not in inside and "/dev/zero" not in inside
            deadline = time.monotonic() + 5  # the cancelled call frees its memory a moment later
            while (after := mappings(job.pid)) != before and time.monotonic() < deadline:
                time.sleep(0.05)
            assert after == before
            assert leftovers.changed_code(job.pid) == []


def test_a_file_that_the_target_cannot_read(dynprof, spawn, tmp_path, venv_python):
    """Its user may not open the library where it lies: it gets a copy, which is removed."""
    hidden = tmp_path / "hidden"
    hidden.mkdir(mode=0o700)
    for name in ("dynprof-bpf", "libdynprof_cupti.so"):
        shutil.copy2(support.REPO / "build" / name, hidden / name)
    runner = support.Dynprof(tmp_path, hidden / "dynprof-bpf")
    job = subprocess.Popen(
        ["/usr/bin/python3", JOB, gpu.FAKES, "--polls"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "CUDA_INJECTION64_PATH": "none"},
        preexec_fn=lambda: (os.setgid(65534), os.setuid(65534)),
    )  # fmt: skip
    try:
        if not job.stdout.readline().startswith("ready"):
            pytest.skip("another user may not read this checkout")
        run = record(runner, tmp_path / "out", job)
        run.wait_for_err(LOADED)
        run.wait_for_err(r"GPU work of process \d+ is traced", timeout=30)
        stop(run)
        assert "libdynprof_cupti.so (deleted)" in Path(f"/proc/{job.pid}/maps").read_text()
    finally:
        runner.close()
        job.kill()
        job.wait()


ADVICE = f"; for times on the GPU, start the job with CUDA_INJECTION64_PATH={gpu.LIBRARY}"


def assert_not_loaded(dynprof, directory, job, why, advice=ADVICE, printed="^$"):
    """One line says why and what to do, the launches are recorded with probes, and the job goes on: it prints what it
    prints without a recording, beside the lines `printed` that its interpreter writes."""
    before = list(job.lines)
    run = record(dynprof, directory, job)
    run.wait_for_err("uses CUDA without libdynprof_cupti.so", timeout=60)
    tell(job, "launch 5")
    done = stop(run)
    [line] = [line for line in done.err.splitlines() if NOT_LOADED in line]
    assert re.search(why, line), line
    assert line.endswith(advice), line
    assert len(GpuDump(directory).calls) == 5
    assert "libdynprof_cupti" not in Path(f"/proc/{job.pid}/maps").read_text()
    job.send("exit")
    assert job.wait() == 0, job.text
    own = [line for line in job.lines if not re.search(printed, line)]
    assert own == [*before, "did 1 launch"], job.text


def assert_refused(dynprof, directory, job, why):
    run = record(dynprof, directory, job)
    run.wait_for_err("uses CUDA without libdynprof_cupti.so")
    done = stop(run)
    assert NOT_LOADED in done.err and why in done.err, done
    assert "libdynprof_cupti" not in Path(f"/proc/{job.pid}/maps").read_text()
    doctor = dynprof.run("doctor", "-p", job.pid)
    assert "cannot be loaded" in doctor.out, doctor.out
    assert why in doctor.out, doctor.out


def test_remote_debugging_is_off(dynprof, spawn, tmp_path, interpreter):
    if interpreter.minor < (3, 14):
        pytest.skip("before 3.14 there is none")
    job = start_job(
        spawn, interpreter.path, "--polls", library=False, env={"PYTHON_DISABLE_REMOTE_DEBUG": "1"}
    )
    assert_refused(dynprof, tmp_path / "out", job, "remote debugging is off")


def test_a_traced_process_is_refused(dynprof, spawn, tmp_path, venv_python):
    job = start_job(spawn, venv_python, "--polls", library=False)
    tracer = subprocess.Popen(
        ["strace", "-qq", "-e", "trace=none", "-p", str(job.pid)], stderr=subprocess.DEVNULL
    ) if shutil.which("strace") else pytest.skip("no strace")  # fmt: skip
    try:
        deadline = time.monotonic() + 10
        while "TracerPid:\t0" in Path(f"/proc/{job.pid}/status").read_text():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert_refused(dynprof, tmp_path / "out", job, "another program traces process")
    finally:
        tracer.terminate()
        tracer.wait()


STOP_AND_HOLD = """
import ctypes, os, sys, time
libc = ctypes.CDLL(None, use_errno=True)
pid = int(sys.argv[1])
SEIZE, INTERRUPT = 0x4206, 0x4207
assert libc.ptrace(SEIZE, pid, None, None) == 0, os.strerror(ctypes.get_errno())
assert libc.ptrace(INTERRUPT, pid, None, None) == 0
os.waitpid(pid, 0)
print("ready", flush=True)
time.sleep(600)
"""


def test_a_process_that_its_tracer_has_stopped_is_refused(dynprof, spawn, tmp_path, venv_python):
    """The reason is the tracer: SIGCONT would not let the process go on."""
    job = start_job(spawn, venv_python, "--polls", library=False)
    tracer = spawn([sys.executable, "-c", STOP_AND_HOLD, str(job.pid)], timeout=120)
    try:
        assert_refused(dynprof, tmp_path / "out", job, "another program traces process")
    finally:  # first: while it lives, the job cannot be waited for
        tracer.kill()


def test_a_process_with_a_seccomp_filter_is_refused(dynprof, spawn, tmp_path, venv_python):
    allow_all = (
        "import ctypes, os, sys; libc = ctypes.CDLL(None);"
        "code = (ctypes.c_uint64 * 1)(0x7fff000000000006);"
        "program = (ctypes.c_uint64 * 2)(1, ctypes.addressof(code));"
        "assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program) == 0;"
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    job = spawn(
        [venv_python, "-c", allow_all, venv_python, JOB, gpu.FAKES, "--polls"],
        timeout=120, env={"CUDA_INJECTION64_PATH": "none"},
    )  # fmt: skip
    assert_refused(dynprof, tmp_path / "out", job, "has a seccomp filter")


@pytest.mark.pythons("3.13", "3.14")
def test_no_folder_of_the_target_lets_programs_be_executed(spawn, tmp_path, interpreter):
    """Neither where the library lies nor where a copy of it could be put."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    for name in ("dynprof-bpf", "libdynprof_cupti.so"):
        shutil.copy2(support.REPO / "build" / name, hidden / name)
    runner = support.Dynprof(tmp_path, hidden / "dynprof-bpf")
    # The job's own files stay executable, also if they are below /tmp.
    mounts = [(folder, "noexec") for folder in ("/tmp", "/var/tmp", "/dev/shm", "/run")]
    mounts += [(support.REPO, "exec"), (hidden, "noexec")]
    script = "".join(
        f"mount --bind '{folder}' '{folder}' && mount -o remount,bind,{option} '{folder}' && "
        for folder, option in mounts
    )
    job = spawn(
        [support.tool("unshare"), "-m", "sh", "-c", script + 'exec "$@"', "sh",
         interpreter.path, JOB, gpu.FAKES, "--polls"],
        timeout=120, env={"CUDA_INJECTION64_PATH": "none"},
    )  # fmt: skip
    why = rf"process {job.pid} sees no temporary directory that programs may be in; "
    try:
        assert_not_loaded(runner, tmp_path / "out", job, why, "mount /tmp or /dev/shm without noexec")
    finally:
        runner.close()


def test_a_process_with_a_shadow_stack_is_refused(dynprof, spawn, tmp_path, venv_python):
    """No CPU is needed that has them: dynprof-bpf is started where /proc/PID/status tells of one."""
    job = start_job(spawn, venv_python, "--polls", library=False)
    own = Path(f"/proc/{job.pid}/status")
    lines = [line for line in own.read_text().splitlines() if not line.startswith("x86_Thread_features:")]
    status = tmp_path / "status"
    status.write_text("\n".join([*lines, "x86_Thread_features:\tshstk ", ""]))
    enter = tmp_path / "enter"
    enter.write_text(
        "#!/bin/sh\n"
        f"exec unshare -m sh -c 'mount --bind {status} {own} && exec \"$@\"' sh {dynprof.binary} \"$@\"\n"
    )
    enter.chmod(0o755)
    runner = support.Dynprof(tmp_path, enter)
    try:
        doctor = runner.run("doctor", "-p", job.pid)
        assert f"cannot be loaded: process {job.pid} has a shadow stack (CET)" in doctor.out, doctor.out
        assert_not_loaded(runner, tmp_path / "out", job, r"has a shadow stack \(CET\)")
    finally:
        runner.close()


def test_a_c_library_other_than_glibc_is_refused(dynprof, spawn, tmp_path, venv_python):
    """Of what maps no file that is named as glibc's are: a job whose libc.so.6 is a link to another name."""
    maps = Path("/proc/self/maps").read_text()
    libc = re.search(r"(/\S*/libc\.so\.6)$", maps, re.M) or pytest.skip("this Python does not use glibc")
    folder = tmp_path / "libraries"
    folder.mkdir()
    shutil.copy2(libc[1], folder / "libc.other.so.1")
    (folder / "libc.so.6").symlink_to("libc.other.so.1")
    job = start_job(spawn, venv_python, "--polls", library=False, env={"LD_LIBRARY_PATH": str(folder)})
    doctor = dynprof.run("doctor", "-p", job.pid)
    assert f"cannot be loaded: process {job.pid} does not use glibc" in doctor.out, doctor.out
    assert_not_loaded(dynprof, tmp_path / "out", job, "does not use glibc")


# `change` is done at SIGUSR1, when the job has imported all it needs.
CHANGED_JOB = """
import runpy, signal, sys
def change(number, frame):
{change}
    print("changed", flush=True)
signal.signal(signal.SIGUSR1, change)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def start_changed_job(spawn, python, change):
    job = spawn(
        [python, "-c", CHANGED_JOB.format(change=textwrap.indent(change, "    ")), JOB, gpu.FAKES, "--polls"],
        timeout=120, env={"CUDA_INJECTION64_PATH": "none"},
    )  # fmt: skip
    job.signal(signal.SIGUSR1)
    job.wait_for("^changed$")
    return job


NO_CTYPES = """
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name == "_ctypes":
            raise ModuleNotFoundError("No module named '_ctypes'", name=name)
sys.meta_path.insert(0, Missing())
del sys.modules["_ctypes"]
"""


@pytest.mark.pythons("3.14", "3.15")
def test_an_interpreter_without_ctypes(dynprof, spawn, tmp_path, interpreter):
    job = start_changed_job(spawn, interpreter.path, NO_CTYPES)
    why = "could not load the library: ModuleNotFoundError: No module named '_ctypes';"
    assert_not_loaded(dynprof, tmp_path / "out", job, why)


REFUSING_HOOK = """
def hook(event, arguments):
    if event == {event!r}:
        raise RuntimeError("not allowed here")
sys.addaudithook(hook)
"""


@pytest.mark.pythons("3.14", "3.15")
@pytest.mark.parametrize("event", ["ctypes.dlopen", "cpython.remote_debugger_script"])
def test_an_audit_hook_refuses(dynprof, spawn, tmp_path, interpreter, event):
    """What the script does, or the script itself: of that the interpreter writes to the job's standard error."""
    job = start_changed_job(spawn, interpreter.path, REFUSING_HOOK.format(event=event))
    why, printed = "could not load the library: RuntimeError: not allowed here;", "^$"
    if event == "cpython.remote_debugger_script":
        why = "it did not open the script for that; an audit hook of the program may refuse it;"
        printed = "remote debugger script|^Traceback|^  |^RuntimeError: not allowed here$"
    assert_not_loaded(dynprof, tmp_path / "out", job, why, printed=printed)
    assert attach.folders_left(set(), job.pid) == []


@pytest.mark.pythons("3.13", "3.15")
def test_a_target_in_another_pid_namespace(dynprof, spawn, tmp_path, interpreter):
    """As in a container, where its process has another id: it is loaded into as any other."""
    job = spawn(
        [support.tool("unshare"), "--pid", "--fork", "--mount-proc", interpreter.path, JOB, gpu.FAKES, "--polls"],
        timeout=120, env={"CUDA_INJECTION64_PATH": "none"},
    )  # fmt: skip
    [pid] = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
    run = samples.start_recording(
        dynprof, tmp_path / "out", "--pid", pid, "--gpu", "on", hertz=99
    )
    run.wait_for_err(LOADED)
    run.wait_for_err(rf"GPU work of process {pid} is traced", timeout=30)
    tell(job, "launch 5")
    assert NOT_LOADED not in stop(run).err
    assert len(GpuDump(tmp_path / "out").calls) == 5
    job.send("exit")
    assert job.wait() == 0, job.text
    assert job.lines == ["ready 1", "did 1 launch"]


def test_killed_at_any_moment_of_the_loading(spawn, tmp_path, interpreter):
    row = attach.run_kills(interpreter, 8, tmp_path)
    assert row.good, "\n".join([str(row), *row.details()])


TWICE = ("malloc", "registers", "signals", "fork", "locked")  # the others take longer


@pytest.mark.parametrize("kind", attach.KINDS)
def test_loaded_whatever_the_main_thread_does(tmp_path, interpreter, kind):
    if not attach.is_for(interpreter, kind):
        pytest.skip("no pending call is added under this mutex")
    row = attach.run(interpreter, kind, 2 if kind in TWICE else 1, tmp_path)
    assert row.good, "\n".join([str(row), *row.details()])


def test_a_stop_by_the_user(dynprof, spawn, tmp_path, venv_python):
    """Control-C while the main thread is waited for."""
    job = start_job(spawn, venv_python, library=False)
    run = dynprof.start(
        "record", "--pid", job.pid, "--gpu", "on", "-o", tmp_path / "out"
    )
    timer = threading.Timer(1.5, lambda: run.signal(signal.SIGINT))
    timer.start()
    began = time.monotonic()
    done = run.wait(timeout=60)
    timer.join()
    assert "stopped while the library was being loaded" in done.err, done
    assert time.monotonic() - began < 5
    tell(job, "launch 5")
    assert "/dev/zero" not in Path(f"/proc/{job.pid}/maps").read_text()
