"""`record --gpu on` of a launcher: the library is loaded into its ranks, also into those that start later, and into
no worker of theirs; --gpu-ranks says into which; all of them are in one trace, and each is in its own."""

import json
import re
import subprocess
import time
from pathlib import Path

import pytest

import gpu_library as gpu
import samples
import support
from gpu_recording import GpuDump, stop

pytestmark = pytest.mark.root_bpf

JOB = support.REPO / "tests" / "programs" / "gpu_ranks_job.py"


class Launcher:
    def __init__(self, spawn, python, *roles, env=None):
        self.running = spawn([python, JOB, gpu.FAKES, *roles], timeout=120, env=env)
        self.pid = self.running.pid
        self.running.wait_for("^ready$")

    def children(self, role):
        return [int(pid) for pid in re.findall(rf"(?m)^child {role} (\d+)$", self.running.text)]


def has_library(pid):
    return "libdynprof_cupti" in Path(f"/proc/{pid}/maps").read_text()


def record(dynprof, directory, job, *arguments):
    return samples.start_recording(
        dynprof, directory, "--pid", job.pid, "--gpu", "on", *arguments, hertz=99
    )


def await_traced(run, pids):
    for pid in pids:
        run.wait_for_err(rf"GPU work of process {pid} is traced", timeout=60)


def voluntary_switches(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"(?m)^voluntary_ctxt_switches:\s+(\d+)", status)[1])


def await_launches(pids):
    """Each of them launches a kernel, sleeps, and launches the next one."""
    before = {pid: voluntary_switches(pid) for pid in pids}
    deadline = time.monotonic() + 60
    while any(voluntary_switches(pid) < before[pid] + 5 for pid in pids):
        assert time.monotonic() < deadline, before
        time.sleep(0.02)


def kernels(directory, pid):
    dump = GpuDump(directory)
    return {item.name for item in dump.work if item.pid == pid}


def test_ranks_have_it_and_workers_never(dynprof, spawn, tmp_path, venv_python):
    job = Launcher(spawn, venv_python, "forked", "rank", "data", "compile", "autotune")
    ranks = job.children("rank")
    others = [job.pid, *(pid for role in ("forked", "data", "compile", "autotune") for pid in job.children(role))]
    assert len(ranks) == 2 and len(others) == 5
    run = record(dynprof, tmp_path / "out", job)
    await_traced(run, ranks)
    await_launches(ranks)
    done = stop(run)
    for rank, pid in enumerate(ranks):
        assert f"libdynprof_cupti.so was loaded into process {pid} (rank {rank})" in done.err, done
        assert has_library(pid)
        assert kernels(tmp_path / "out", pid) == {f"_Z5rank{rank}Pf"}
    assert done.err.count("was loaded into") == 2 and "not loaded" not in done.err, done
    assert not any(has_library(pid) for pid in others)
    # Until the library is off it tells of calls that no probe sees any more: they are after the end.
    calls = GpuDump(tmp_path / "out").calls
    assert calls and all(call.announced and call.stack for call in calls)


def test_only_the_ranks_that_were_asked_for(dynprof, spawn, tmp_path, venv_python):
    job = Launcher(spawn, venv_python, "rank", "rank", "rank", "rank")
    ranks = job.children("rank")
    run = record(dynprof, tmp_path / "out", job, "--gpu-ranks", "0,2-3")
    await_traced(run, [ranks[0], ranks[2], ranks[3]])
    await_launches(ranks)
    done = stop(run)
    assert [has_library(pid) for pid in ranks] == [True, False, True, True]
    # Its launches are recorded all the same.
    assert f"process {ranks[1]} uses CUDA without libdynprof_cupti.so" in done.err, done
    assert {call.pid for call in GpuDump(tmp_path / "out").calls} == set(ranks)


def test_a_rank_that_starts_later(dynprof, spawn, tmp_path, venv_python):
    job = Launcher(spawn, venv_python, "rank", "late")
    run = record(dynprof, tmp_path / "out", job)
    await_traced(run, job.children("rank"))
    job.running.send("late")
    job.running.wait_for(r"^child rank \d+$", timeout=30)
    deadline = time.monotonic() + 30
    while len(job.children("rank")) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    late = job.children("rank")[1]
    run.wait_for_err(rf"was loaded into process {late} \(rank 1\)", timeout=60)
    await_traced(run, [late])
    await_launches([late])
    stop(run)
    assert "_Z5rank1Pf" in kernels(tmp_path / "out", late)


def test_a_child_of_a_target_that_has_the_library(dynprof, spawn, tmp_path, venv_python):
    """All probes of the target are set by then: the rights for those of a child are still there."""
    job = Launcher(
        spawn, venv_python, "--cuda", "late", env={"CUDA_INJECTION64_PATH": str(gpu.LIBRARY)}
    )
    run = record(dynprof, tmp_path / "out", job)
    await_traced(run, [job.pid])
    time.sleep(2)
    job.running.send("late")
    (child,) = [int(job.running.wait_for(r"^child rank (\d+)$", timeout=30)[1])]
    await_traced(run, [child])
    await_launches([child])
    done = stop(run)
    assert "is not recorded" not in done.err, done
    assert kernels(tmp_path / "out", child) == {"_Z5rank0Pf"}


def test_a_command_that_starts_ranks(dynprof, tmp_path, venv_python):
    command = f"sleep 8 | {venv_python} {JOB} {gpu.FAKES} rank rank"
    done = dynprof.run(
        "record", "--gpu", "on", "-o", tmp_path / "out", "--", "sh", "-c", command
    )
    assert done.err.count("was loaded into process") == 2, done
    names = {item.name for item in GpuDump(tmp_path / "out").work}
    assert names == {"_Z5rank0Pf", "_Z5rank1Pf"}


def test_one_trace_of_all_ranks_and_one_of_each(dynprof, spawn, tmp_path, venv_python):
    job = Launcher(spawn, venv_python, "--torch", "rank", "rank")
    ranks = job.children("rank")
    run = record(dynprof, tmp_path / "out", job)
    await_traced(run, ranks)
    await_launches(ranks)
    stop(run)
    export = dynprof.run(
        "export", "-f", "chrome", "--split", "rank", "-o", tmp_path / "split", tmp_path / "out"
    )
    assert export.rc == 0, export
    names = sorted(path.name for path in (tmp_path / "split").iterdir())
    assert names == ["rank0.trace.json.gz", "rank1.trace.json.gz"]
    merged = kernels_of_trace(tmp_path / "out" / "trace.json.gz")
    apart = [kernels_of_trace(tmp_path / "split" / name) for name in names]
    assert merged == {"rank0(float*)", "rank1(float*)"}
    report = " ".join((tmp_path / "out" / "report.txt").read_text().split())
    assert " of 1 GPU shared by 2 processes" in report
    assert apart == [{"rank0(float*)"}, {"rank1(float*)"}]


def kernels_of_trace(path):
    text = subprocess.run(["gzip", "-dc", path], capture_output=True, check=True).stdout
    return {e["name"] for e in json.loads(text)["traceEvents"] if e.get("cat") == "kernel"}


@pytest.mark.parametrize("text", ["x", "3-1", "0,", "-1", "1-", "12345678"])
def test_a_list_that_is_none(dynprof, text):
    done = dynprof.run("record", "--pid", "1", "--gpu", "on", f"--gpu-ranks={text}")
    assert done.rc == 2 and "is not a list of ranks" in done.err, done
