"""How libdynprof_cupti.so goes on and off, and what it and its process must survive: profilers that are
killed, forks, exits, a CUPTI that is busy, slow, old, absent or broken. No GPU, no BPF.
"""

import collections
import os
import random
import re
import signal
import sys

import pytest

import gpu_library as gpu
import support
from gpu_library import CUDA, assert_nothing_lost, dumping, finish, start, unavailable

__all__ = ["dumping", "start"]  # fixtures

RETRY = 2  # seconds between attempts while CUPTI refuses


# ---- on and off ----------------------------------------------------------------------------------


def test_attach_and_detach_twenty_times(dumping):
    target = dumping()
    for session in range(1, 21):
        target.do("launch 11")  # not attached: not recorded
        target.attach(session=session)
        target.do("launch 100")
        target.do("graph 2 3")
        target.do("sync")
        target.detach(session=session)
    dump = gpu.read_dump(target.dump_path)
    kinds = [collections.Counter(r.kind for r in session) for session in dump.sessions]
    once = {gpu.KERNEL: 106, gpu.CALL: 103, gpu.DEVICE: 1}
    assert kinds == [once] * 20
    for status in dump.statuses:
        assert_nothing_lost(status)
    assert target.do("threads").split().count("dynprof-gpu") == 1
    assert target.exit() == ""


def test_a_second_profiler_gets_everything_again(dumping):
    target = dumping()
    target.attach()
    target.do("launch 1")
    target.do("sync")
    target.inside.await_status(gpu.ON, records=4)  # two calls, kernel, device
    target.inside.raise_to(2)
    target.inside.await_status(gpu.ON, records=5)  # the device once more
    target.inside.raise_to(1)
    dump, _ = finish(target)
    assert len(dump.of_kind(gpu.DEVICE)) == 2
    assert len(dump.sessions) == 1


def test_detached_while_threads_launch(dumping):
    target = dumping()
    target.do("background 3 20")
    for session in range(1, 11):
        target.attach(session=session)
        target.inside.await_status(gpu.ON, session=session)
        target.detach(session=session)
    target.do("launch 1")
    assert len(gpu.read_dump(target.dump_path).sessions) == 10
    assert target.exit() == ""


@pytest.fixture
def uprobes():
    """uprobes(task, *names): opened by perf_event_open, without BPF; closed at the end."""
    if not gpu.Uprobe.PMU.exists() or os.geteuid() != 0:
        unavailable("no uprobes: needs root and /sys/bus/event_source/devices/uprobe")
    opened = []

    def open_probes(task, *names):
        found = [gpu.Uprobe(name, task) for name in names]
        opened.extend(found)
        return found

    yield open_probes
    for probe in opened:
        probe.close()


def profiler_in_a_child(pid):
    """A process that holds the probe that is the switch; returns when it does."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            _switch = gpu.Uprobe("gpu_launch", pid)
            os.write(writer, b"1")
            signal.pause()
        finally:
            os._exit(1)
    os.close(writer)
    assert os.read(reader, 1) == b"1"
    os.close(reader)
    return child


def test_kernel_lowers_the_switch_of_a_killed_profiler(start, uprobes):
    target = start()
    target.do("background 2 50")
    chance = random.Random(6)
    for session in range(1, 51):
        before = target.inside.status().session
        profiler = profiler_in_a_child(target.pid)
        assert target.inside.semaphore() == 1
        if session % 2:
            target.inside.await_status(gpu.ON)
        # Else at some moment of the way from off to on.
        target.do(f"launch {chance.randrange(2000)}")
        os.kill(profiler, signal.SIGKILL)
        os.waitpid(profiler, 0)
        assert target.inside.semaphore() == 0
        if target.inside.status().session > before or session % 2:
            target.inside.await_status(gpu.OFF)
    assert target.exit() == ""


def test_probes_fire_once_per_call_batch_and_name(start, uprobes):
    target = start()
    # perf counts one thread: the batches come from the library's own.
    own = uprobes(target.inside.thread(), "gpu_status", "gpu_name", "gpu_batch")
    (launches,) = uprobes(target.pid, "gpu_launch")
    target.inside.await_status(gpu.ON)
    target.do("launch 1000")
    target.do("graph 10 3")
    target.do("sync")
    expected = 1011 + 1030 + 1  # calls, kernels, device
    target.inside.await_status(gpu.ON, records=expected)
    status, names, batches = (probe.hits() for probe in own)
    assert launches.hits() == target.inside.status().calls == 1011
    assert expected / 127 <= batches < expected / 10
    assert status >= 2  # starting, on
    table = (support.REPO / "cupti" / "calls_table.h").read_text()
    calls = set(re.findall(r'^DYNPROF_CALL.*"(\w+)"', table, re.M))
    assert names == len(calls) + 3  # two kernels and the device


# ---- fork, exit, several processes ---------------------------------------------------------------


def test_fork_while_active(dumping):
    target = dumping()
    target.do("background 2 50")
    target.attach()
    for _ in range(20):
        assert target.do("fork 50") == "0"  # the child's wait status
    target.do("launch 5")
    dump, truth = finish(target)
    # The driver's log and the library agree on who launched: the children are in neither.
    assert {r.thread for r in dump.calls} <= {tid for _, _, tid in truth.calls.values()}
    assert dump.sessions and dump.pid == target.pid
    assert target.exit() == ""


@pytest.mark.parametrize("mode", ["attached", "always"])
def test_exit_while_active(dumping, mode):
    for rc in range(20):
        target = dumping(mode=mode)
        target.do("background 2 20")
        if mode == "attached":
            target.attach()
        else:
            target.inside.await_status(gpu.ON)
        target.do("launch 100")
        assert target.exit(rc) == ""
        dump = gpu.read_dump(target.dump_path)
        assert dump.statuses[-1].code == gpu.OFF
        assert sum(r.thread == target.pid for r in dump.calls) == 100


def test_two_processes(dumping, start, tmp_path):
    environment = {"DYNPROF_GPU_DUMP": tmp_path / "gpu-%p", "DYNPROF_GPU_DUMP_MODE": "attached"}
    targets = [start(env=environment) for _ in range(2)]
    for number, target in enumerate(targets):
        target.attach()
        target.do(f"launch {10 + number}")
        target.do("sync")
    for number, target in enumerate(targets):
        target.detach()
        dump = gpu.read_dump(tmp_path / f"gpu-{target.pid}")
        assert dump.pid == target.pid
        assert len(dump.of_kind(gpu.KERNEL)) == 10 + number


# ---- a CUPTI that does not want ------------------------------------------------------------------


def test_busy_cupti(start):
    target = start()
    assert target.do("second on") == "0"
    target.inside.raise_to(1)
    status = target.inside.await_status(gpu.BUSY)
    assert status.detail == 39
    target.do("launch 100")
    target.do("second off")
    target.inside.await_status(gpu.ON, timeout=10 * RETRY)
    target.detach()
    assert target.exit() == ""


def test_no_cupti(start):
    target = start(cupti=None)
    target.inside.raise_to(1)
    target.inside.await_status(gpu.NO_CUPTI)
    target.do("launch 100")
    target.inside.raise_to(0)
    assert target.exit() == ""


def test_cupti_named_for_a_program_that_maps_none(start):
    target = start(cupti=None, env={"DYNPROF_GPU_CUPTI": gpu.FAKE_CUPTI})
    target.attach()
    target.do("launch 1")
    target.detach()
    assert target.exit() == ""


@pytest.mark.parametrize(
    "env, code, detail",
    [
        ({"FAKE_CUPTI_VERSION": 18}, gpu.TOO_OLD, 18),
        ({"FAKE_CUPTI_SUBSCRIBE_RESULT": 999}, gpu.FAILED, 999),
        ({"FAKE_CUPTI_SUBSCRIBE_RESULT": 35}, gpu.FAILED, 35),
        ({"FAKE_CUPTI_ENABLE_RESULT": 35}, gpu.FAILED, 35),
    ],
)
def test_cupti_that_fails(dumping, env, code, detail):
    target = dumping(env=env)
    target.inside.raise_to(1)
    target.inside.await_status(code, detail=detail)
    target.do("launch 1000")
    target.inside.raise_to(0)
    assert target.exit() == ""
    dump = gpu.read_dump(target.dump_path)
    assert [s.code for s in dump.statuses] == [gpu.STARTING, code]
    assert not dump.records


def test_slow_subscription(dumping):
    target = dumping(env={"FAKE_CUPTI_SUBSCRIBE_MS": 1500})
    target.inside.raise_to(1)
    target.inside.await_status(gpu.STARTING)
    target.do("launch 1000")
    assert target.inside.status().code == gpu.STARTING
    target.inside.await_status(gpu.ON)
    target.do("launch 10")
    target.do("sync")
    target.detach()
    assert len(gpu.read_dump(target.dump_path).of_kind(gpu.KERNEL)) == 10


def test_detached_during_a_slow_subscription(start):
    target = start(env={"FAKE_CUPTI_SUBSCRIBE_MS": 500})
    target.inside.raise_to(1)
    target.inside.await_status(gpu.STARTING)
    target.inside.raise_to(0)
    target.inside.await_status(gpu.OFF, session=1)
    assert target.exit() == ""


def test_exit_during_a_slow_subscription(start):
    target = start(env={"FAKE_CUPTI_SUBSCRIBE_MS": 700})
    target.inside.raise_to(1)
    target.inside.await_status(gpu.STARTING)
    assert target.exit() == ""


def test_real_cupti_without_a_driver():
    real = CUDA / "lib64" / "libcupti.so.13"
    if not real.exists():
        unavailable(f"no {real}")
    script = (
        "import ctypes\n"
        f"ctypes.CDLL({str(real)!r}, mode=ctypes.RTLD_GLOBAL)\n"
        f"assert ctypes.CDLL({str(gpu.LIBRARY)!r}).InitializeInjection() == 1\n"
        "print('ready', flush=True)\n"
        "print('done', input(), flush=True)\n"
    )
    target = support.spawn([sys.executable, "-c", script])
    try:
        inside = gpu.Inside(target.pid)
        inside.raise_to(1)
        status = inside.await_status(gpu.FAILED, detail=999)
        assert status.cupti_version >= 130000
        inside.raise_to(0)
        target.send("well")
        target.wait_for("done well")
        assert target.wait() == 0
    finally:
        target.kill()
    assert target.lines == ["ready", "done well"]


def test_a_buffer_that_another_client_left_behind(dumping):
    target = dumping()
    assert target.do("empty") == "0"
    target.do("launch 10")
    target.do("sync")
    assert target.do("second off") == "0"
    target.attach()
    target.do("launch 6000")  # more than fit into it
    target.do("sync")
    dump, _ = finish(target)
    assert len(dump.of_kind(gpu.KERNEL)) == 6000
    launches = {r.correlation for r in dump.calls if r.text == "cudaLaunchKernel"}
    assert {r.correlation for r in dump.work} == launches
    assert dump.statuses[-1].foreign_buffers == 1
    assert target.exit() == ""


def test_a_clock_that_another_client_changed_is_reported(dumping):
    target = dumping(env={"FAKE_CUPTI_CLOCK_SKEW_NS": 10**12})
    target.attach()
    target.do("launch 100")
    target.do("sync")
    dump, _ = finish(target)
    assert dump.statuses[-1].implausible_times == len(dump.work) == 100
