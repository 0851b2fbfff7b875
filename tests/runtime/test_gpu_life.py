"""Recordings of GPU work that come and go, are killed at any moment, or whose jobs fork, end or are two: the
job must go on, the library must be off afterwards, and what was recorded must be right."""

import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

import gpu_library as gpu
import samples
from gpu_recording import GpuDump, start_job, stop, tell

pytestmark = pytest.mark.root_bpf

# GPU_LIFE=N: so many times as many, for a long run.
LONGER = int(os.environ.get("GPU_LIFE", 1))
CYCLES, KILLS = 6 * LONGER, 16 * LONGER


class Job:
    """tests/programs/gpu_job.py."""

    def __init__(self, running):
        self.running, self.pid = running, running.pid
        self.inside = gpu.Inside(running.pid)

    def do(self, line):
        tell(self.running, line)

    def exit(self):
        """Lets it end; True if it was well."""
        self.running.send("exit")
        return self.running.wait() == 0 and "bad " not in self.running.text


@pytest.fixture
def start(spawn, venv_python):
    return lambda *arguments, env=None: Job(start_job(spawn, venv_python, *arguments, env=env))


def begin(dynprof, directory, *pids):
    """`record` of these, once it samples and the library in each is on."""
    run = samples.start_recording(
        dynprof, directory, "--pid", ",".join(map(str, pids)), hertz=99
    )
    for pid in pids:
        run.wait_for_err(rf"GPU work of process {pid} is traced", timeout=30)
    return run


def truth_of(target, tmp_path):
    path = tmp_path / f"driver-{target.pid}.log"
    target.do(f"log {path}")
    return gpu.read_truth(path)


def await_off(inside, session):
    """There is no listener any more, and the library knows. Whether it was switched on since that session."""
    inside.await_no_listener()
    was_on = inside.status().session > session
    if was_on:
        inside.await_status(gpu.OFF, timeout=20)
    return was_on


def test_recordings_of_one_job(dynprof, start, tmp_path):
    target = start()
    seen = Counter()
    for cycle in range(CYCLES):
        run = begin(dynprof, tmp_path / f"out{cycle}", target.pid)
        target.do("launch 20")
        target.do("graph 2 3")
        target.do("sync")
        stop(run)
        assert target.inside.status().code == gpu.OFF
        assert all(target.inside.semaphore(probe) == 0 for probe in gpu.PROBES)
        target.do("launch 5")  # no listener
        dump = GpuDump(tmp_path / f"out{cycle}")
        assert len(dump.calls) == 23 and len(dump.work) == 26
        assert dump.orphans == 0 and dump.lost() == {}
        assert {item.name for item in dump.work} == {"_Z5plainPf", "_Z4nodePf"}
        seen.update(call.correlation for call in dump.calls)
    assert len(seen) == 23 * CYCLES and set(seen.values()) == {1}
    calls = truth_of(target, tmp_path).calls
    assert set(seen) < set(calls) and len(calls) == 28 * CYCLES
    names = [path.read_text() for path in Path(f"/proc/{target.pid}/task").glob("*/comm")]
    assert names.count("dynprof-gpu\n") == 1
    assert target.exit()


def test_killed_at_any_moment(dynprof, start, tmp_path):
    target = start()
    target.do("background 2")
    chance = random.Random(50)
    slowest, switched_on = 0.0, 0
    for attempt in range(KILLS):
        session = target.inside.status().session
        run = dynprof.start(
            "record", "--pid", target.pid, "-o", tmp_path / f"out{attempt}"
        )
        if attempt % 2:
            # Some moment after the switch was raised: going on, on, or taking batches.
            deadline = time.monotonic() + 30
            while target.inside.semaphore() == 0:
                assert time.monotonic() < deadline and run.process.poll() is None, run.err
            time.sleep(chance.uniform(0, 0.2))  # the library looks at the switch ten times a second
        # Work of a random length, so that the moment is a random one.
        target.do(f"launch {chance.randrange(20_000)}")
        killed = time.monotonic()
        run.signal(signal.SIGKILL)
        run.wait()
        switched_on += await_off(target.inside, session)
        slowest = max(slowest, time.monotonic() - killed)
        target.do("launch 10")
    assert switched_on >= KILLS // 4
    print(f"{switched_on} of {KILLS} killed while on; off {slowest:.3f} s after the signal at most")
    run = begin(dynprof, tmp_path / "after", target.pid)
    target.do("launch 100")
    target.do("sync")
    stop(run)
    dump = GpuDump(tmp_path / "after")
    assert sum(call.tid == target.pid for call in dump.calls) == 101
    assert dump.lost() == {}
    assert target.exit()


def test_a_job_that_forks_while_recorded(dynprof, start, tmp_path):
    target = start()
    target.do("background 2")
    run = begin(dynprof, tmp_path / "out", target.pid)
    for _ in range(10):
        target.do("fork 50")
    target.do("launch 50")
    target.do("sync")
    done = stop(run)
    truth = truth_of(target, tmp_path)
    dump = GpuDump(tmp_path / "out")
    assert {call.pid for call in dump.calls} == {target.pid}, done
    main = [call for call in dump.calls if call.tid == target.pid]
    assert len(main) == 51 and all(call.announced and call.end for call in main)
    assert {call.correlation for call in dump.calls} <= set(truth.calls)
    assert dump.lost() == {}
    assert target.exit()


@pytest.mark.parametrize("how", ["exit", "killed"])
def test_a_job_that_ends_among_its_launches(dynprof, start, tmp_path, how):
    for attempt in range(3):
        target = start()
        out = tmp_path / f"out{attempt}"
        run = begin(dynprof, out, target.pid)
        target.do("launch 200")
        target.do("sync")
        target.do("background 2")
        if how == "exit":
            assert target.exit()
        else:
            os.kill(target.pid, signal.SIGKILL)
            target.running.wait()
        done = run.wait()
        assert done.rc == 0 and "did not answer" not in done.err, done
        dump = GpuDump(out)
        main = [call for call in dump.calls if call.tid == target.pid]
        assert len(main) == 201 and all(call.announced for call in main)
        if how == "exit":
            # Its end is waited for: what ran is there, and has its call.
            assert all(call.end and call.works == (call.name != "cudaDeviceSynchronize")
                       for call in main)  # fmt: skip
            assert dump.orphans == 0 and dump.lost() == {}


def test_two_processes_in_one_recording(dynprof, start, tmp_path):
    targets = [start() for _ in range(2)]
    run = begin(dynprof, tmp_path / "out", *(target.pid for target in targets))
    for number, target in enumerate(targets):
        target.do(f"launch {10 + number}")
        target.do("sync")
    stop(run)
    dump = GpuDump(tmp_path / "out")
    for number, target in enumerate(targets):
        truth = truth_of(target, tmp_path)
        calls = [call for call in dump.calls if call.pid == target.pid]
        assert {call.correlation for call in calls} == set(truth.calls)
        work = [item for item in dump.work if item.pid == target.pid]
        assert len(work) == 10 + number
        # The same correlation ids in both: each finds its own process' call.
        assert all(dump.calls[item.call].pid == target.pid for item in work)
    assert dump.orphans == 0 and dump.lost() == {}


def test_a_job_without_cupti_is_reported_once(dynprof, start, tmp_path):
    target = start("--no-cupti")
    run = samples.start_recording(
        dynprof, tmp_path / "out", "--pid", target.pid, hertz=99
    )
    run.wait_for_err("maps no libcupti; name one in DYNPROF_GPU_CUPTI")
    target.do("launch 10")
    done = stop(run)
    assert done.err.count("libcupti") == 1, done
    assert target.exit()


@pytest.mark.parametrize(
    "env, sentence",
    [
        ({"FAKE_CUPTI_VERSION": "18"}, "its libcupti is older than CUDA 12.0"),
        ({"FAKE_CUPTI_SUBSCRIBE_RESULT": "999"}, "CUPTI refused with error 999"),
    ],
)
def test_a_cupti_that_refuses_is_reported_once(dynprof, start, tmp_path, env, sentence):
    """Probes on the driver record the launches instead."""
    target = start(env=env)
    run = samples.start_recording(
        dynprof, tmp_path / "out", "--pid", target.pid, hertz=99
    )
    run.wait_for_err(sentence)
    target.do("launch 10")
    done = stop(run)
    assert done.err.count(sentence) == 1, done
    calls = GpuDump(tmp_path / "out").calls
    assert [(call.name, call.bare) for call in calls] == [("cuLaunchKernel", True)] * 10
    assert target.exit()


def test_a_rate_cap_is_counted(dynprof, start, tmp_path):
    target = start(env={"DYNPROF_GPU_MAX_CALLS_PER_SECOND": "100"})
    run = begin(dynprof, tmp_path / "out", target.pid)
    target.do("launch 5000")
    target.do("sync")
    stop(run)
    dump = GpuDump(tmp_path / "out")
    left_out = dump.lost().pop("gpu_rate_capped")
    # 5,001 calls and 5,000 kernels: each is there, or counted.
    assert len(dump.calls) + len(dump.items) + left_out == 10_001
    assert 1 <= len(dump.calls) < 5000 and dump.orphans == 0
    assert len(dump.work) == sum(call.works for call in dump.calls)
    report = dynprof.run("report", tmp_path / "out", "--losses").out
    assert f"{left_out:,}" in report, report
