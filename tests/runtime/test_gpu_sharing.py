"""Recordings of GPU work beside others of the same process, and beside another client of CUPTI, which a note names."""

import shutil

import pytest

import gpu_library as gpu
import samples
from gpu_recording import GpuDump, start_job, stop, tell

pytestmark = pytest.mark.root_bpf


def begin(dynprof, directory, job, *arguments):
    run = samples.start_recording(dynprof, directory, "--pid", job.pid, *arguments, hertz=99)
    run.wait_for_err(r"GPU work of process \d+ is traced", timeout=30)
    return run


@pytest.mark.parametrize("first", [(), ("--sampled-launch-stacks",)])
@pytest.mark.parametrize("first_to_end", [0, 1])
def test_two_recordings_at_once_have_all_names(
    dynprof, spawn, tmp_path, venv_python, first_to_end, first
):
    job = start_job(spawn, venv_python)
    runs = [begin(dynprof, tmp_path / "a", job, *first)]
    tell(job, "launch 10")
    tell(job, "graph 2 3")  # the names and the device are known to the first one alone
    runs.append(begin(dynprof, tmp_path / "b", job))
    tell(job, "launch 10")
    tell(job, "graph 2 3")
    tell(job, "sync")
    done = stop(runs.pop(first_to_end))
    assert "did not answer" not in done.err, done
    tell(job, "launch 5")
    tell(job, "sync")
    stop(runs.pop())
    dumps = {name: GpuDump(tmp_path / name) for name in "ab"}
    for name, dump in dumps.items():
        assert {item.name for item in dump.work} == {"_Z5plainPf", "_Z4nodePf"}
        assert all(call.name for call in dump.calls)
        assert first and name == "a" or all(call.announced for call in dump.calls)
        assert dump.devices == [[job.pid, 0, "Fake GPU", 132]]
        assert dump.orphans == 0 and dump.lost() == {}
        ended_first = name == "ab"[first_to_end]
        kernels = (32 if name == "a" else 16) + (0 if ended_first else 5)
        assert len(dump.work) == kernels, name


@pytest.mark.parametrize(
    "file, holder",
    [
        ("libToolsInjection64.so", "Nsight Systems"),
        ("libcuda-injection.so", "Nsight Compute"),
        ("libtorch_cpu.so", "torch.profiler, which up to mid-2026 stays subscribed"),
        ("libdynprof_cupti.so.1", "the libdynprof_cupti.so of another dynprof-bpf"),
    ],
)
def test_the_note_names_what_the_process_maps(dynprof, spawn, tmp_path, venv_python, file, holder):
    job = start_job(spawn, venv_python)
    shutil.copy(gpu.FAKES / "libcudart.so.13", tmp_path / file)
    tell(job, f"load {tmp_path / file}")
    tell(job, "subscribe")
    run = samples.start_recording(dynprof, tmp_path / "out", "--pid", job.pid, hertz=99)
    run.wait_for_err(rf"another CUPTI client is active \(39\): {holder}")
    stop(run)
    assert "did not answer" not in run.err, "there was nothing to wait for"
    tell(job, "unsubscribe")


def test_the_note_has_the_name_that_the_client_gave_itself(dynprof, spawn, tmp_path, venv_python):
    job = start_job(spawn, venv_python, env={"FAKE_CUPTI_VERSION": "130300"})
    tell(job, "alone some\x1b[2Jthing")
    run = samples.start_recording(dynprof, tmp_path / "out", "--pid", job.pid, hertz=99)
    found = run.wait_for_err(r"another CUPTI client is active \(39\): (CUPTI for some.*)")
    assert "\x1b" not in found[1] and "thing" in found[1]
    tell(job, "unsubscribe")
    run.wait_for_err(r"GPU work of process \d+ is traced", timeout=30)
    tell(job, "launch 5")
    stop(run)
    assert len(GpuDump(tmp_path / "out").calls) == 5
