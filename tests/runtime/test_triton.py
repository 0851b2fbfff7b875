"""Kernels that a job compiles and tunes with Triton while it serves, against what Triton says of each compilation and
what the job measured of each request. A real Triton, for a GPU that is not there (tests/programs/triton_job.py)."""

import collections
import json

import pytest

import json_schema
import samples
import support

pytestmark = pytest.mark.root_bpf

JOB = support.REPO / "tests" / "programs" / "triton_job.py"
LLVM, ASSEMBLER = ("llir", "ptx"), ("cubin",)
RATE_HZ = 499
RUN_S = 0.06  # of each of the three configurations of softmax_kernel


@pytest.fixture(scope="module")
def served(newest_torch, tmp_path_factory):
    """(output directory, what the job says)"""
    folder = tmp_path_factory.mktemp("triton")
    truth = folder / "truth.json"
    target = support.spawn(
        [newest_torch.python, JOB, truth], timeout=180, env={"TRITON_CACHE_DIR": str(folder / "cache")}
    )
    dynprof = support.Dynprof(folder)
    try:
        target.wait_for("^ready", timeout=120)
        run = dynprof.start("--pid", target.pid, "-F", RATE_HZ, "-o", folder / "out")
        samples.wait_until_sampling(run)
        target.send("go")
        target.wait_for("^done", timeout=120)
        target.send("end")
        assert target.wait() == 0, target.text
        done = run.wait()
        assert done.rc == 0, done
    finally:
        dynprof.close()
        target.kill()
    return folder / "out", json.loads(truth.read_text())


@pytest.fixture(scope="module")
def kernels(served):
    ledger = json.loads((served[0] / "compiles.json").read_text())
    assert json_schema.compiles_problems(ledger) == []
    found = ledger["triton"]["kernels"]
    return {one["kernel"]: one for one in found}, found


def of_kernel(truth, name):
    return [one for one in truth["compilations"] if one["kernel"] == name]


def test_a_row_for_each_kernel_with_its_caller(kernels, served):
    by_name, found = kernels
    assert sorted(by_name) == ["add_kernel", "softmax_kernel"]
    assert len(found) == 2, found
    for name, function in (("add_kernel", "answer"), ("softmax_kernel", "answer_softmax")):
        lines = {one["line"] for one in served[1]["requests"] if one["function"] == function}
        caller = by_name[name]["caller"]
        assert (caller["function"], {caller["line"]}) == (function, lines)
        assert caller["file"].endswith("/triton_job.py")


def test_each_compilation_is_counted(kernels, served):
    counted = collections.Counter(one["kernel"] for one in served[1]["compilations"])
    assert counted == {"add_kernel": 4, "softmax_kernel": 3}
    # One that no reading fell into is not seen: a reading is 20 ms after the last one at the earliest.
    for name, count in counted.items():
        assert count - 1 <= kernels[0][name]["compilations"] <= count


def test_callers_waited_as_long_as_triton_says(kernels, served):
    """And no longer than their requests, which do little else but for an import in the first."""
    for name, function, tuned_s in (("add_kernel", "answer", 0), ("softmax_kernel", "answer_softmax", 3 * RUN_S)):
        requests = [one["ns"] / 1e9 for one in served[1]["requests"] if one["function"] == function]
        compilations = [one["us"] / 1e6 for one in of_kernel(served[1], name)]
        row = kernels[0][name]
        assert row["stall_s"] == pytest.approx(sum(compilations) + tuned_s, rel=0.1, abs=0.05)
        assert row["stall_s"] <= sum(requests) + 0.02
        longest = max(compilations) if tuned_s == 0 else sum(compilations) + tuned_s
        assert row["longest_s"] == pytest.approx(longest, rel=0.15, abs=0.05)


def test_stages_last_as_long_as_triton_says(kernels, served):
    for name, row in kernels[0].items():
        stages = collections.Counter()
        for one in of_kernel(served[1], name):
            stages.update(one["stages"])
        for column, parts in (("llvm_s", LLVM), ("assembler_s", ASSEMBLER)):
            expected = sum(stages[part] for part in parts) / 1e6
            assert row[column] == pytest.approx(expected, rel=0.15, abs=0.04), (name, column)
    assert kernels[0]["add_kernel"]["tuning_s"] == 0
    assert kernels[0]["softmax_kernel"]["tuning_s"] == pytest.approx(3 * RUN_S, rel=0.2, abs=0.03)


def test_the_report_says_so(served):
    report = (served[0] / "report.txt").read_text()
    summary = report[: report.index("Trace id")] if "Trace id" in report else report
    assert "2 kernels compiled or tuned outside of torch.compile" in summary
    assert "call each Triton kernel once before serving" in summary
    table = [line for line in report.splitlines() if "triton_job.py:" in line and not line.startswith("#")]
    assert any("add_kernel" in line for line in table)
