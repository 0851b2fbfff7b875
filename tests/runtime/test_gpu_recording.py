"""GPU work end to end: jobs on the fakes of tests/fakes, recorded through the in-target library or by
probes on CUDA itself, held against the fake driver's own log."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "faults"))

import gpu_library as gpu  # noqa: E402
import json_schema  # noqa: E402
import leftovers  # noqa: E402
import samples  # noqa: E402
import support  # noqa: E402
from gpu_recording import GpuDump, assert_same, check_trace, record, start_job, stop, tell, truth_of  # noqa: E402

pytestmark = pytest.mark.root_bpf

STEPS = 12


def test_every_launch_has_its_stack_thread_and_work(dynprof, spawn, tmp_path, interpreter):
    job = start_job(spawn, interpreter.path)
    run = record(dynprof, tmp_path / "out", job, "--gpu", "on")
    for line in ("launch 20", "threads 3 15", "graph 4 5", "copy 6", "sync"):
        tell(job, line)
    stop(run)
    truth = truth_of(job, tmp_path)
    dump = GpuDump(tmp_path / "out")
    assert_same(dump, truth)
    assert len(dump.calls) == 20 + 45 + 4 + 6 + 1 and len(dump.work) == 20 + 45 + 20 + 6
    by_name = defaultdict(list)
    for call in dump.calls:
        by_name[call.name].append(call)
    for call in by_name["cudaLaunchKernel"]:
        functions = dump.functions(call)
        assert functions[-3:] == ["launch_outer", "launch_inner", "launch"]
        assert (functions[1] == "main") == (call.tid == job.pid), functions
    assert len({call.tid for call in by_name["cudaLaunchKernel"]}) == 4
    assert all(dump.functions(call)[-1] == "main" for call in by_name["cudaGraphLaunch"])
    assert [call.works for call in by_name["cudaGraphLaunch"]] == [5] * 4
    assert dump.devices == [[job.pid, 0, "Fake GPU", 132]]

    trace = check_trace(tmp_path / "out")
    slices = Counter(e["cat"] for e in trace["traceEvents"] if e["ph"] == "X")
    assert slices["kernel"] == 85 and slices["gpu_memcpy"] == 6 and slices["cuda_runtime"] == 76
    flows = Counter(e["ph"] for e in trace["traceEvents"] if e.get("cat") == "ac2g")
    assert flows == {"s": 75, "f": 91}
    report = (tmp_path / "out" / "report.txt").read_text()
    assert "GPU: 76 CUDA calls, 91 kernels and copies" in report
    assert "plain(float*)" in report and "gpu_job.py:" in report
    document = json.loads((tmp_path / "out" / "compiles.json").read_text())
    assert json_schema.compiles_problems(document) == []
    ledger = document["gpu"]
    assert (ledger["calls"], ledger["work"], ledger["work_without_call"]) == (76, 91, 0)


def test_launches_from_two_lines_of_a_caller_keep_their_lines(dynprof, spawn, tmp_path, interpreter):
    """Stacks that differ in one outer frame alone: most of these launches refer to one that was sent before."""
    job = start_job(spawn, interpreter.path)
    run = record(dynprof, tmp_path / "out", job, "--gpu", "on")
    tell(job, "lines 300")
    stop(run)
    dump = GpuDump(tmp_path / "out")
    assert_same(dump, truth_of(job, tmp_path))
    kernel = {item.call: item.name for item in dump.work}
    places = defaultdict(Counter)
    for number, call in enumerate(dump.calls):
        frames = dump.recording.stack(call.stack)
        assert [frame.name for frame in frames][-4:] == [
            "launch_from_two_lines", "launch_by_name", "launch_inner_by_name", "launch"
        ]  # fmt: skip
        places[kernel[number]][frames[-4].line] += 1
    lines = dict(enumerate(support.REPO.joinpath("tests/programs/gpu_job.py").read_text().splitlines(), 1))
    assert len(places) == 2
    for name, seen in places.items():
        [(line, count)] = seen.items()
        assert count == 300 and name in lines[line]


def test_all_launch_stacks_tell_functions_apart_that_were_made_in_the_same_memory(
    dynprof, spawn, tmp_path, interpreter
):
    job = start_job(spawn, interpreter.path)
    run = record(dynprof, tmp_path / "out", job, "--all-launch-stacks")
    tell(job, "made 20")
    stop(run)
    dump = GpuDump(tmp_path / "out")
    assert_same(dump, truth_of(job, tmp_path))
    kernel = {item.call: item.name for item in dump.work}
    told = Counter()
    for number, call in enumerate(dump.calls):
        made = [name for name in dump.functions(call) if name.startswith("made_for_")]
        told[(kernel[number], *made)] += 1
    right = told["_Z5firstPf", "made_for_first"] + told["_Z6secondPf", "made_for_other"]
    unnamed = told[("_Z5firstPf",)] + told[("_Z6secondPf",)]  # gone before it was read
    assert right + unnamed == len(dump.calls) == 120 and right >= 60, told


def test_launches_carry_the_trace_id_of_the_region_that_made_them(
    dynprof, spawn, tmp_path, venv_python
):
    job = start_job(spawn, venv_python, "--torch")
    run = record(dynprof, tmp_path / "out", job)
    tell(job, f"train {STEPS}")
    stop(run)
    truth = truth_of(job, tmp_path)
    dump = GpuDump(tmp_path / "out")
    assert_same(dump, truth)
    kernel = {item.call: item.name for item in dump.work}
    expected = {
        "first_forward": ("0/0", False),
        "first_backward": ("0/0", True),
        "second_forward": ("1/0", False),
        "second_backward": ("1/0", True),
    }
    told = defaultdict(Counter)
    for number, call in enumerate(dump.calls):
        assert call.in_run and not call.compiling, call
        told[kernel[number]][call.trace_id, call.backward] += 1
        functions = dump.functions(call)
        assert functions[-1] == "launch" and "train" in functions
    assert told == {name: {identity: STEPS} for name, identity in expected.items()}

    trace = check_trace(tmp_path / "out")
    regions = [e for e in trace["traceEvents"] if e["ph"] == "X" and e["cat"] == "cpu_op"]
    for call in (e for e in trace["traceEvents"] if e.get("cat") == "cuda_runtime"):
        inside = [
            region
            for region in regions
            if (region["pid"], region["tid"]) == (call["pid"], call["tid"])
            and region["ts"] <= call["ts"] <= region["ts"] + region["dur"]
        ]
        assert inside[-1]["args"]["trace_id"] == call["args"]["trace_id"]
    report = (tmp_path / "out" / "report.txt").read_text()
    assert "bw 0/0" in report and "bw 1/0" in report
    regions = json.loads((tmp_path / "out" / "compiles.json").read_text())["gpu"]["regions"]
    assert {
        (r["trace_id"], r["backward"]): (r["runs"], r["launches"], r["work"]) for r in regions
    } == {identity: (STEPS,) * 3 for identity in expected.values()}


STEPS_OF_MANY_RUNS = 200


def stop_after_many_runs(run, job):
    """800 runs in less than four seconds; 200 a second are the usual limit. What the recording wrote to stderr."""
    began = time.monotonic()
    tell(job, f"train {STEPS_OF_MANY_RUNS}")
    took = time.monotonic() - began
    assert 4 * STEPS_OF_MANY_RUNS / took > 200, "the job is too slow for this test"
    return stop(run).err


@pytest.mark.parametrize("options", [(), ("--gpu", "on")], ids=["found", "on"])
def test_with_the_library_runs_are_recorded_at_five_times_the_usual_rate(
    dynprof, spawn, tmp_path, venv_python, options
):
    steps = STEPS_OF_MANY_RUNS
    job = start_job(spawn, venv_python, "--torch")
    run = record(dynprof, tmp_path / "out", job, *options)
    assert "runs compiled regions" not in stop_after_many_runs(run, job)
    dump = GpuDump(tmp_path / "out")
    assert all(call.in_run for call in dump.calls)
    regions = json.loads((tmp_path / "out" / "compiles.json").read_text())["gpu"]["regions"]
    assert {(r["trace_id"], r["backward"]): r["runs"] for r in regions} == {
        (trace_id, backward): steps for trace_id in ("0/0", "1/0") for backward in (False, True)
    }


def test_without_the_library_runs_are_recorded_at_the_usual_rate(dynprof, spawn, tmp_path, venv_python):
    job = start_job(spawn, venv_python, "--torch", library=False)
    run = samples.start_recording(dynprof, tmp_path / "out", "--pid", job.pid, hertz=99)
    run.wait_for_err("uses CUDA without libdynprof_cupti.so")
    assert "runs compiled regions more than 200 times a second" in stop_after_many_runs(run, job)


def test_copies_and_streams_of_a_region(dynprof, spawn, tmp_path, venv_python):
    job = start_job(spawn, venv_python, "--torch")
    run = record(dynprof, tmp_path / "out", job)
    tell(job, f"streams {STEPS}")
    stop(run)
    document = json.loads((tmp_path / "out" / "compiles.json").read_text())
    assert json_schema.compiles_problems(document) == []
    (region,) = document["gpu"]["regions"]
    assert region["work"] == 2 * STEPS and region["memsets"]["count"] == 0
    assert region["copies"]["count"] == STEPS and region["copies"]["bytes"] == 4096 * STEPS
    assert region["graphs_recorded"] == 1 and 0.02 <= region["graph_record_s"] < 1
    default, own = sorted(region["streams"], key=lambda stream: stream["id"])
    assert default["id"] == 7 and default["busy_s"] == region["copies"]["total_s"]
    assert own["busy_s"] >= STEPS * 0.002
    # A thread that gets no CPU may copy after the kernel's end.
    assert 0 < region["overlap_s"] <= default["busy_s"]
    verdict = region["verdict"]
    assert verdict["busy_s"] >= STEPS * 0.002 and verdict["bound"] in ("cpu", "gpu", "other")
    report = " ".join((tmp_path / "out" / "report.txt").read_text().replace("\n#", " ").split())
    assert f"; {STEPS} copies (48.0 KiB, " in report and "; 2 streams, two or more of " in report


def test_attaching_again_and_again(dynprof, spawn, tmp_path, venv_python):
    job = start_job(spawn, venv_python)
    inside = gpu.Inside(job.pid)
    seen = set()
    for attempt in range(3):
        run = record(dynprof, tmp_path / f"out{attempt}", job)
        tell(job, "launch 30")
        stop(run)
        assert inside.status().code == gpu.OFF
        assert all(inside.semaphore(probe) == 0 for probe in gpu.PROBES)
        tell(job, "launch 5")  # no listener
        dump = GpuDump(tmp_path / f"out{attempt}")
        assert len(dump.calls) == len(dump.work) == 30 and dump.orphans == 0 and dump.lost() == {}
        assert {item.name for item in dump.work} == {"_Z5plainPf"}, "names come at each attach"
        seen |= {call.correlation for call in dump.calls}
    assert len(seen) == 90
    assert set(truth_of(job, tmp_path).calls) - seen and job.process.poll() is None


def test_a_killed_profiler_leaves_the_job_as_it_was(dynprof, spawn, tmp_path, venv_python):
    job = start_job(spawn, venv_python)
    inside = gpu.Inside(job.pid)
    run = record(dynprof, tmp_path / "killed", job)
    tell(job, "launch 10")
    inside.await_status(gpu.ON)
    run.signal(signal.SIGKILL)
    inside.await_status(gpu.OFF, timeout=10)
    inside.await_no_listener()
    tell(job, "launch 10")
    run = record(dynprof, tmp_path / "again", job)
    tell(job, "launch 10")
    stop(run)
    dump = GpuDump(tmp_path / "again")
    assert len(dump.calls) == len(dump.work) == 10 and dump.lost() == {}


def test_the_summary_says_who_waits_for_whom(dynprof, spawn, tmp_path, venv_python):
    job = start_job(spawn, venv_python)
    run = record(dynprof, tmp_path / "out", job)
    for _ in range(4):
        tell(job, "launch 5")
        time.sleep(0.05)
    stop(run)
    report = (tmp_path / "out" / "report.txt").read_text()
    share = r"(9\d|100) %"
    said = rf"(?m)^  GPU            CPU-bound: idle {share} of 0\.\d\d s, {share} of that before"
    assert re.search(said, report), report
    (device,) = json.loads((tmp_path / "out" / "compiles.json").read_text())["gpu"]["devices"]
    assert device["busy_s"] > 0 and device["idle_s"] > 0.1 and device["late_s"] > 0.9 * device["idle_s"]


def test_a_job_that_ends_while_recorded_loses_nothing(dynprof, spawn, tmp_path, venv_python):
    job = start_job(spawn, venv_python)
    run = record(dynprof, tmp_path / "out", job)
    tell(job, "threads 2 500")
    truth = truth_of(job, tmp_path)
    job.send("exit")
    assert job.wait() == 0
    done = run.wait()
    assert done.rc == 0 and "did not answer" not in done.err, done
    assert_same(GpuDump(tmp_path / "out"), truth)


def test_cuda_that_comes_later_is_found(dynprof, spawn, tmp_path, venv_python):
    job = start_job(spawn, venv_python, "--late")
    # Samples of a job that sleeps are none: it is found all the same.
    run = samples.start_recording(dynprof, tmp_path / "out", "--pid", job.pid, hertz=99)
    assert "GPU" not in run.err
    tell(job, "init")
    run.wait_for_err(r"GPU work of process \d+ is traced", timeout=30)
    tell(job, "launch 7")
    stop(run)
    dump = GpuDump(tmp_path / "out")
    assert len(dump.calls) == len(dump.work) == 7


def driver_is_probed(pid):
    return any("libcuda.so" in path for path, _ in leftovers.changed_code(pid))


def test_while_cupti_is_busy_launches_are_recorded_by_probes(dynprof, spawn, tmp_path, venv_python):
    job = start_job(spawn, venv_python)
    tell(job, "subscribe")
    run = samples.start_recording(dynprof, tmp_path / "out", "--pid", job.pid, hertz=99)
    run.wait_for_err(
        r"another CUPTI client is active \(39\): Nsight, cuda-gdb or another profiler.*"
        "; meanwhile its launches are recorded by probes"
    )
    tell(job, "launch 5")
    tell(job, "threads 2 10")
    assert driver_is_probed(job.pid)
    tell(job, "unsubscribe")
    run.wait_for_err(r"GPU work of process \d+ is traced", timeout=30)
    deadline = time.monotonic() + 10
    while driver_is_probed(job.pid):  # another process closes them, while the recording goes on
        assert time.monotonic() < deadline, "the probes are still there"
        time.sleep(0.05)
    tell(job, "launch 5")
    done = stop(run)
    assert done.err.count("another CUPTI client") == 1, done
    dump = GpuDump(tmp_path / "out")
    assert Counter((call.name, call.bare, call.works) for call in dump.calls) == {
        ("cuLaunchKernel", 1, 0): 25,
        ("cudaLaunchKernel", 0, 1): 5,
    }
    assert all(dump.functions(call)[-3:] == ["launch_outer", "launch_inner", "launch"]
               for call in dump.calls if call.tid == job.pid)
    assert dump.lost() == {}


def test_calls_are_seen_once_while_cupti_becomes_free(dynprof, spawn, tmp_path, venv_python):
    """Probes and the library both see calls for a moment."""
    job = start_job(spawn, venv_python)
    tell(job, "subscribe")
    run = samples.start_recording(dynprof, tmp_path / "out", "--pid", job.pid, hertz=99)
    run.wait_for_err("meanwhile its launches are recorded by probes")
    tell(job, "launch 200")
    tell(job, "unsubscribe")
    launches = 200
    while "is traced (CUPTI" not in run.err:
        tell(job, "launch 200")
        launches += 200
    tell(job, "launch 200")
    stop(run)
    calls = GpuDump(tmp_path / "out").calls
    by_probe = sum(call.bare for call in calls)
    assert 200 <= by_probe <= launches
    # The one that is under way when the library begins can be seen by both.
    assert len(calls) - (launches + 200) in (0, 1)


def test_the_library_is_asked_for_in_a_job_without_cuda(dynprof, spawn, tmp_path, venv_python):
    job = start_job(spawn, venv_python, "--late", library=False)
    done = dynprof.run("record", "--pid", job.pid, "--gpu", "on", "-o", tmp_path / "out")
    assert done.rc == 1 and "CUDA_INJECTION64_PATH" in done.err, done
    assert "libdynprof_cupti.so" in done.err and not (tmp_path / "out").exists()


def test_off_touches_nothing(dynprof, spawn, tmp_path, venv_python):
    job = start_job(spawn, venv_python)
    inside = gpu.Inside(job.pid)
    run = record(dynprof, tmp_path / "out", job, "--gpu", "off")
    tell(job, "launch 5")
    assert all(inside.semaphore(probe) == 0 for probe in gpu.PROBES)
    done = stop(run)
    assert "GPU" not in done.err
    assert GpuDump(tmp_path / "out").calls == []


def test_an_unknown_mode_is_refused(dynprof):
    done = dynprof.run("record", "--pid", os.getpid(), "--gpu", "maybe")
    assert done.rc == 2 and "--gpu auto, on or off" in done.err, done


def test_without_the_library_each_launch_is_seen_once(dynprof, spawn, tmp_path, venv_python):
    job = start_job(spawn, venv_python, library=False)
    run = samples.start_recording(dynprof, tmp_path / "out", "--pid", job.pid, hertz=99)
    run.wait_for_err("uses CUDA without libdynprof_cupti.so")
    before = time.monotonic_ns()
    for line in ("launch 20", "threads 2 10", "graph 3 4", "copy 6", "sync"):
        tell(job, line)
    after = time.monotonic_ns()
    done = stop(run)
    assert done.err.count("uses CUDA without") == 1
    dump = GpuDump(tmp_path / "out")
    assert Counter(call.name for call in dump.calls) == {
        "cuLaunchKernel": 40,
        "cuGraphLaunch": 3,
        "cuMemcpyHtoDAsync_v2": 2,
        "cuMemcpyDtoHAsync_v2": 2,
        "cuMemcpyDtoDAsync_v2": 2,
    }
    assert all(call.bare and call.end == 0 and before < call.begin < after for call in dump.calls)
    launches = [call for call in dump.calls if call.name == "cuLaunchKernel"]
    for call in launches:
        assert dump.functions(call)[-3:] == ["launch_outer", "launch_inner", "launch"]
    assert dump.items == [] and dump.lost() == {}
    check_trace(tmp_path / "out")
    report = (tmp_path / "out" / "report.txt").read_text()
    assert "49 CUDA calls were seen without" in report and " how long" in report


def launched_by_probes(dynprof, spawn, tmp_path, venv_python, *lines):
    """{(call, kernel, the file that launched it, how often)} of a job that is told these lines."""
    job = start_job(spawn, venv_python, library=False)
    run = samples.start_recording(dynprof, tmp_path / "out", "--pid", job.pid, hertz=99)
    run.wait_for_err("uses CUDA without libdynprof_cupti.so")
    for line in lines:
        tell(job, line)
        # A name that was read is believed for a second.
        if line.startswith("scale"):
            time.sleep(1.2)
    stop(run)
    rows = json.loads((tmp_path / "out" / "compiles.json").read_text())["gpu"]["without_library"]
    return {(row["call"], row["kernel"], row["caller"], row["count"]) for row in rows}


def test_a_kernel_without_a_name_has_the_library_that_launched_it(
    dynprof, spawn, tmp_path, venv_python
):
    # The job's own functions are on its heap, so that their kernels have no name either.
    lines = ("launch 3", "multiply 4", "launch 2", "multiply 5")
    assert launched_by_probes(dynprof, spawn, tmp_path, venv_python, *lines) == {
        ("cuLaunchKernel", None, "libcublasLt.so.13", 9),
        ("cuLaunchKernelEx", None, "libcublasLt.so.13", 9),
        ("cuLaunchKernel", None, None, 5),
    }
    dump = GpuDump(tmp_path / "out")
    functions = Counter(dump.functions(call)[-1] for call in dump.calls)
    assert functions == {"launch": 5, "multiply": 18}, "what called the driver is no frame of the stack"
    report = (tmp_path / "out" / "report.txt").read_text()
    assert re.search(r"(?m)^ +9  - +\(launched by libcublasLt\.so\.13\) +\S*gpu_job", report), report
    assert re.search(r"(?m)^ +5  - +\(cuLaunchKernel\) +\S*gpu_job", report), report
    trace = check_trace(tmp_path / "out")
    callers = Counter(event.get("args", {}).get("caller") for event in trace["traceEvents"])
    assert callers["libcublasLt.so.13"] == 18


def test_a_kernel_has_the_name_that_the_driver_has(dynprof, spawn, tmp_path, venv_python):
    """Where the symbol of another kernel's function is the same as its name in the driver."""
    lines = ("multiply 4", "scale _Z5scalePfi 3", "launch 2")
    assert launched_by_probes(dynprof, spawn, tmp_path, venv_python, *lines) == {
        ("cuLaunchKernel", "sm90_gemm_f32", None, 4),
        ("cuLaunchKernelEx", "void cublas::gemm<float>(float const*)", None, 4),
        ("cuLaunchKernel", "scale(float*, int)", None, 3),
        ("cuLaunchKernel", "plain(float*)", None, 2),
    }
    report = (tmp_path / "out" / "report.txt").read_text()
    assert re.search(r"(?m)^ +4  - +sm90_gemm_f32 +\S*gpu_job", report), report
    names = Counter(
        event["args"].get("kernel") for event in check_trace(tmp_path / "out")["traceEvents"]
        if event.get("cat") == "cuda_driver"
    )  # fmt: skip
    assert names["sm90_gemm_f32"] == 4, names


def test_names_of_a_driver_that_has_something_else_there_are_not_used(
    dynprof, spawn, tmp_path, venv_python
):
    lines = ("multiply 4", "scale some_module 3")
    assert launched_by_probes(dynprof, spawn, tmp_path, venv_python, *lines) == {
        ("cuLaunchKernel", None, "libcublasLt.so.13", 4),
        ("cuLaunchKernelEx", None, "libcublasLt.so.13", 4),
        ("cuLaunchKernel", "scale(float*, int)", None, 3),
    }


def test_what_is_no_name_is_left_out(dynprof, spawn, tmp_path, venv_python):
    lines = ("scale _Z5scalePfi 3", "scale not-a-symbol 4")
    assert launched_by_probes(dynprof, spawn, tmp_path, venv_python, *lines) == {
        ("cuLaunchKernel", "scale(float*, int)", None, 7),
    }


def test_after_many_launches_the_runtime_is_not_probed(dynprof, spawn, tmp_path, venv_python):
    """The driver's name is the only one then."""
    lines = ("scale _Z5scalePfi 2500", "scale other 10", "scale not-a-symbol 5")
    assert launched_by_probes(dynprof, spawn, tmp_path, venv_python, *lines) == {
        ("cuLaunchKernel", "scale(float*, int)", None, 2500),
        ("cuLaunchKernel", "other", None, 10),
        ("cuLaunchKernel", None, "libcudart.so.13", 5),
    }


REAL = r"""
#include <cuda_runtime.h>
#include <stdio.h>
__global__ void plain(float* x) { *x = 1; }
int main() {
  char line[64];
  int error = 0;
  while (fgets(line, sizeof line, stdin)) {
    for (int i = 0; i < 20; ++i) plain<<<1, 32>>>(nullptr);
    error = cudaGetLastError();
    cudaMemsetAsync(nullptr, 0, 4, 0);
    printf("called %d\n", error);
    fflush(stdout);
  }
  return error;
}
"""


def test_the_real_runtime_without_a_gpu(dynprof, tmp_path):
    """NVIDIA's own libcudart: the launches fail without a driver, and are seen all the same."""
    nvcc = gpu.CUDA / "bin" / "nvcc"
    if not nvcc.exists():
        gpu.unavailable(f"no {nvcc}")
    source, program, orders = tmp_path / "real.cu", tmp_path / "real", tmp_path / "orders"
    source.write_text(REAL)
    subprocess.run(
        [nvcc, "-cudart", "shared", "-o", program, source, "-Xlinker", f"-rpath={gpu.CUDA}/lib64"],
        check=True,
        timeout=300,
    )
    os.mkfifo(orders)
    run = dynprof.start(
        "record", "-o", tmp_path / "out", "--", "sh", "-c", f"exec {program} < {orders}"
    )
    with open(orders, "w") as to_job:
        run.wait_for_err("calls into libcudart are recorded")
        to_job.write("go\n")
        to_job.flush()
        # It is there until the recording is at its end: names are read from its files.
        deadline = time.monotonic() + 30
        while "called" not in run.out and time.monotonic() < deadline:
            time.sleep(0.01)
        run.interrupt()
        done = run.wait()
    if "called 0" in done.out:
        gpu.unavailable("there is a GPU: the launches succeed")
    assert "called 35" in done.out, done  # cudaErrorInsufficientDriver
    dump = GpuDump(tmp_path / "out")
    assert Counter(call.name for call in dump.calls) == {
        "cudaLaunchKernel": 20,
        "cudaMemsetAsync": 1,
    }
    assert all(call.bare for call in dump.calls) and dump.lost() == {}
    # The kernel's name is the symbol of the function that stands for it.
    report = (tmp_path / "out" / "report.txt").read_text()
    assert re.search(r"(?m)^ +20  - +plain\(float\*\) ", report), report
    trace = check_trace(tmp_path / "out")
    assert Counter(
        e["args"].get("kernel") for e in trace["traceEvents"] if e.get("cat") == "cuda_runtime"
    ) == {"plain(float*)": 20, None: 1}


@pytest.mark.parametrize("per_second", [50_000])
def test_nothing_is_lost_at_fifty_thousand_launches_a_second(dynprof, tmp_path, per_second):
    threads, launches = 2, 50_000
    pause = threads * 1_000_000 // per_second
    log, orders = tmp_path / "driver.log", tmp_path / "orders"
    os.mkfifo(orders)
    run = dynprof.start(
        "record", "--gpu", "on", "-o", tmp_path / "out", "--",
        "sh", "-c", f"exec {gpu.TARGET} {gpu.FAKE_CUPTI} < {orders}",
        env={"CUDA_INJECTION64_PATH": str(gpu.LIBRARY)},
    )  # fmt: skip
    with open(orders, "w") as to_job:
        run.wait_for_err(r"GPU work of process \d+ is traced")
        to_job.write(f"storm {threads} {launches} {pause}\nsync\nlog {log}\nexit\n")
    done = run.wait(timeout=180)
    assert done.rc == 0, done
    assert re.search(r"made [\d,]+ GPU calls a second, each recorded with its stack; --sampled-launch-stacks", done.err)
    truth = gpu.read_truth(log)
    assert len(truth.launches()) == threads * launches
    dump = GpuDump(tmp_path / "out")
    assert_same(dump, truth)
