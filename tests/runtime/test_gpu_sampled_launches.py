"""--sampled-launch-stacks: all calls and all work are recorded, and the stacks of one launch in a millisecond."""

import json
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest

import gpu_library as gpu
import json_schema
import samples
import support
from gpu_recording import JOB, GpuDump, assert_same, check_trace, record, start_job, stop, tell, truth_of

pytestmark = pytest.mark.root_bpf

SAMPLED = "--sampled-launch-stacks"
SHORTEST_NS = 500_000  # between two of a thread: half of DYNPROF_GPU_SAMPLED_LAUNCH_NS


def assert_sampled(dump):
    """Each thread's first call has its stack, and no two have within half a millisecond."""
    begins = defaultdict(list)
    for call in dump.calls:
        if call.announced:
            begins[call.tid].append(call.begin)
    assert set(begins) == {call.tid for call in dump.calls}
    for tid, times in begins.items():
        assert times[0] == min(call.begin for call in dump.calls if call.tid == tid)
        assert all(b - a >= SHORTEST_NS for a, b in zip(times, times[1:], strict=False))
    without = [call for call in dump.calls if not call.announced]
    assert all(call.stack == 0 for call in without)
    return without


def test_all_is_there_and_some_have_a_stack(dynprof, spawn, tmp_path, interpreter):
    job = start_job(spawn, interpreter.path)
    run = record(dynprof, tmp_path / "out", job, SAMPLED)
    for line in ("launch 3000", "threads 3 1000", "graph 4 5", "copy 6", "sync"):
        tell(job, line)
    stop(run)
    dump = GpuDump(tmp_path / "out")
    assert_same(dump, truth_of(job, tmp_path), sampled=True)
    without = assert_sampled(dump)
    assert without, "no launch was quick enough after another"
    for call in dump.calls:
        if call.announced and call.name == "cudaLaunchKernel":
            assert dump.functions(call)[-3:] == ["launch_outer", "launch_inner", "launch"]

    check_trace(tmp_path / "out")
    with_stack = f"{len(dump.calls) - len(without):,}"
    report = (tmp_path / "out" / "report.txt").read_text()
    assert f"{with_stack} of the calls have their stack" in report and "gpu_job.py:" in report
    document = json.loads((tmp_path / "out" / "compiles.json").read_text())
    assert json_schema.compiles_problems(document) == []
    assert document["gpu"]["calls_without_stack"] == len(without)


def test_launches_without_a_stack_have_the_trace_id_of_their_run(
    dynprof, spawn, tmp_path, venv_python
):
    steps = 200
    job = start_job(spawn, venv_python, "--torch")
    run = record(dynprof, tmp_path / "out", job, SAMPLED)
    tell(job, f"train {steps}")
    stop(run)
    dump = GpuDump(tmp_path / "out")
    assert_same(dump, truth_of(job, tmp_path), sampled=True)
    assert assert_sampled(dump)
    kernel = {item.call: item.name for item in dump.work}
    ids = Counter((kernel[i], call.trace_id, call.backward) for i, call in enumerate(dump.calls))
    assert ids == {
        ("first_forward", "0/0", False): steps,
        ("first_backward", "0/0", True): steps,
        ("second_forward", "1/0", False): steps,
        ("second_backward", "1/0", True): steps,
    }


def test_work_that_is_launched_until_the_end(dynprof, spawn, tmp_path, venv_python):
    """The last call that is recorded need not be one with a stack."""
    job = start_job(spawn, venv_python)
    run = record(dynprof, tmp_path / "out", job, SAMPLED)
    tell(job, "background 2")
    time.sleep(1.5)
    assert "GPU calls a second" not in stop(run).err
    dump = GpuDump(tmp_path / "out")
    assert dump.lost() == {} and dump.orphans == 0
    launches = [call for call in dump.calls if call.name == "cudaLaunchKernel"]
    assert len(launches) > 100 and assert_sampled(dump)
    assert all(call.works == 1 for call in launches)
    inside = gpu.Inside(job.pid)
    assert all(inside.semaphore(probe) == 0 for probe in gpu.PROBES)


@pytest.mark.pythons("3.13")
def test_threads_of_another_pid_namespace(dynprof, spawn, tmp_path, interpreter):
    """The library knows them by other numbers than the recording."""
    job = spawn(
        [support.tool("unshare"), "--pid", "--fork", "--mount-proc", interpreter.path, JOB, gpu.FAKES],
        timeout=120, env={"CUDA_INJECTION64_PATH": str(gpu.LIBRARY)},
    )  # fmt: skip
    [pid] = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
    run = samples.start_recording(dynprof, tmp_path / "out", "--pid", pid, SAMPLED, hertz=99)
    run.wait_for_err(rf"GPU work of process {pid} is traced", timeout=30)
    for line in ("launch 2000", "threads 2 500"):
        tell(job, line)
    stop(run)
    dump = GpuDump(tmp_path / "out")
    assert len(dump.calls) == len(dump.work) == 3000 and assert_sampled(dump)
    calls = Counter(call.tid for call in dump.calls)
    assert calls.pop(int(pid)) == 2000
    assert list(calls.values()) == [500, 500] and min(calls) > 100


def test_without_the_library_each_launch_has_its_stack(dynprof, spawn, tmp_path, venv_python):
    job = start_job(spawn, venv_python, library=False)
    run = samples.start_recording(
        dynprof, tmp_path / "out", "--pid", job.pid, SAMPLED, hertz=99
    )
    run.wait_for_err(r"each with its stack: only the library can sample them", timeout=30)
    tell(job, "launch 500")
    stop(run)
    dump = GpuDump(tmp_path / "out")
    assert len(dump.calls) == 500 and all(call.announced for call in dump.calls)
    assert all(dump.functions(call)[-1] == "launch" for call in dump.calls)
    assert "of the calls have their stack" not in (tmp_path / "out" / "report.txt").read_text()


def test_not_with_the_stacks_of_all(dynprof):
    done = dynprof.run("record", "--pid", 1, SAMPLED, "--all-launch-stacks")
    assert done.rc == 2 and "--sampled-launch-stacks exclude each other" in done.err
