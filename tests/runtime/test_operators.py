"""Torch's operators from sampled stacks, compared with torch.profiler's table of some of the same steps."""

import gzip
import json
import math
import os
import statistics
import subprocess

import pytest

import json_schema
import samples
import support

JOB = support.REPO / "tests" / "programs" / "operator_job.py"

# As many samples in 12 s at 499 Hz as in OPERATORS_SECONDS=60 at the default rate.
SECONDS = int(os.environ.get("OPERATORS_SECONDS", 12))
HERTZ = 499 if SECONDS < 60 else 99

# The steps that torch.profiler records differ from the others by more than chance: what else runs, its own cost. Of a
# share.
BETWEEN_STEPS = 0.15
SIGMAS = 4
# With OPERATORS_SECONDS=60, on an idle machine, how much runs differ is measured instead: so many recordings and so
# many references, in turn.
RUNS = 4
# Two-sided 95 % for four shares together (98.75 % each), by degrees of freedom.
STUDENT = {3: 5.391, 4: 4.315, 5: 3.810, 6: 3.521}
# glibc keeps what is freed. Else the result of an operator may be mapped anew at each call, or not, as the heap happens
# to be: page faults that take longer than the operator, and that count as an interruption in the reference.
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 30)}


class Run:
    def __init__(self, folder, python, *job):
        self.command = [python, JOB]
        self.job = job
        self.folder = folder
        self.environment = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"), "TMPDIR": str(folder), **KEEP_MEMORY}
        self.out, self.report = self.recorded("out")
        self.reference = json.loads((folder / "out.json").read_text())
        self.document = json.loads((self.out / "operators.json").read_text())
        self.operators = by_name(self.document)

    def profiled(self, *options):
        """torch.profiler's table of a process that is not recorded."""
        result = self.folder / "reference.json"
        process = support.spawn([*self.command, result, "--profile", *options, *self.job], timeout=400,
                                env=self.environment)
        try:
            assert process.wait() == 0, process.text
        finally:
            process.kill()
        return json.loads(result.read_text())

    def recorded(self, name):
        target = support.spawn([*self.command, self.folder / f"{name}.json", "--seconds", SECONDS, *self.job],
                               timeout=400, env=self.environment)
        dynprof = support.Dynprof(self.folder)
        try:
            target.wait_for("^ready", timeout=300)
            run = dynprof.start("--pid", target.pid, "-F", HERTZ, "-o", self.folder / name)
            samples.wait_until_sampling(run)
            target.send("go")
            target.wait_for("^done", timeout=300)
            target.send("end")
            assert target.wait() == 0, target.text
            done = run.wait()
            assert done.rc == 0, done
        finally:
            dynprof.close()
            target.kill()
        return self.folder / name, done.out

    def sampled(self, name, what):
        return sampled(self.operators, name, what)


def by_name(document):
    operators = {}
    for row in document["operators"]:
        operators.setdefault(row["name"], []).append(row)
    return operators


def sampled(operators, name, what):
    return sum(row[f"{what}_samples"] for row in operators.get(name, []))


@pytest.fixture(scope="module")
def run(require_root_bpf, venv_python, tmp_path_factory):
    return Run(tmp_path_factory.mktemp("operators"), venv_python)


def test_document_is_as_documented(run):
    assert json_schema.operators_problems(run.document) == []
    assert run.document["samples_in_operators"] > 200


# The four that take longest, and that call no library without unwind information, in relation to each other.
COMPARED = ["aten::sort", "aten::cumsum", "aten::_softmax", "aten::sigmoid"]


def shares(times):
    """Of the self time of the compared operators together."""
    whole = sum(times.values())
    return {name: time / whole for name, time in times.items()}


@pytest.mark.skipif(SECONDS < 60, reason="takes minutes on an idle machine: OPERATORS_SECONDS=60")
def test_shares_are_in_their_confidence_interval(run):
    """Welch's interval for the difference of means: chance in the samples is part of how recordings differ."""
    told, found = [], []
    for number in range(RUNS):
        table = run.profiled("--steps", 2000)
        told.append(shares({name: table[name]["count"] * table[name]["mean_us"] for name in COMPARED}))
        out, _ = run.recorded(f"out-{number}")
        operators = by_name(json.loads((out / "operators.json").read_text()))
        found.append(shares({name: sampled(operators, name, "self") for name in COMPARED}))
    for name in COMPARED:
        a, b = [row[name] for row in found], [row[name] for row in told]
        errors = [statistics.variance(one) / RUNS for one in (a, b)]
        freedom = sum(errors) ** 2 / sum(error**2 / (RUNS - 1) for error in errors)
        allowed = STUDENT[math.floor(freedom)] * math.sqrt(sum(errors))
        difference = statistics.fmean(a) - statistics.fmean(b)
        print(f"{name}: {statistics.fmean(a):.4f} sampled, {statistics.fmean(b):.4f} by torch.profiler: "
              f"{difference:+.4f}, interval ± {allowed:.4f}; {a} {b}")
        assert abs(difference) <= allowed < 0.2 * statistics.fmean(b), (name, found, told)


def test_shares_are_those_of_torch_profiler(run):
    expected = {name: run.reference[name]["count"] * run.reference[name]["self_us"] for name in COMPARED}
    measured = {name: run.sampled(name, "self") for name in COMPARED}
    whole_us, whole = sum(expected.values()), sum(measured.values())
    assert whole > 200
    for name in COMPARED:
        share = expected[name] / whole_us
        allowed = SIGMAS * math.sqrt(share * (1 - share) / whole) + BETWEEN_STEPS * share
        assert abs(measured[name] / whole - share) <= allowed, (name, measured, expected, allowed)


def test_an_operator_contains_those_it_calls(run):
    # softmax does nothing but call _softmax.
    assert run.sampled("aten::softmax", "total") >= run.sampled("aten::_softmax", "total") > 20
    assert run.sampled("aten::softmax", "self") < run.sampled("aten::softmax", "total") / 2


def test_autograd_nodes_have_the_profilers_names(run):
    nodes = [row for row in run.document["operators"] if row["kind"] == "autograd node"]
    names = {row["name"] for row in nodes}
    assert "MmBackward0" in names
    assert names <= set(run.reference) | {"torch::autograd::GraphRoot"}
    backward = next(row for row in nodes if row["name"] == "MmBackward0")
    assert backward["total_samples"] > backward["self_samples"]


def test_where_it_was(run):
    places = {}
    for row in run.operators["aten::mm"]:
        for place in row["regions"]:
            key = place["trace_id"] or place["in"]
            places[key] = places.get(key, 0) + place["total_samples"]
    assert places["eager"] > 0
    assert set(places) <= {"eager", "0/0"}
    lines = {line["line"] for row in run.operators["aten::mm"] for line in row["lines"]}
    assert {line.rsplit("/", 1)[-1].split(":")[0] for line in lines} == {"operator_job.py"}


def test_calls_in_compiled_code_have_its_trace_id(run):
    compiled = [
        (row["name"], place["trace_id"])
        for row in run.document["operators"]
        for place in row["regions"]
        if place["in"] == "region"
    ]
    assert compiled
    assert {trace_id for _, trace_id in compiled} == {"0/0"}


def test_report_and_trace_say_that_it_is_sampled(run):
    assert "Operators of torch, sampled" in run.report
    assert "aten::sort" in run.report
    with gzip.open(run.out / "trace.json.gz", "rt") as file:
        events = json.load(file)["traceEvents"]
    slices = [e for e in events if e.get("cat") == "cpu_op" and e["args"].get("sampled")]
    assert {"aten::sort", "aten::softmax"} <= {e["name"] for e in slices}
    rows = {e["tid"] for e in slices}
    named = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert all(named[tid].startswith("operators, sampled") for tid in rows)


def slices(path):
    with gzip.open(path, "rt") as file:
        return [event for event in json.load(file)["traceEvents"] if event["ph"] == "X"]


def test_parts_of_the_trace(run):
    parts = run.out.parent / "parts"
    subprocess.run([support.BINARY, "export", run.out, "-f", "chrome", "--split", "5s", "-o", parts], check=True)
    files = sorted(parts.iterdir())
    assert files[0].name == "00000.000s-00005.000s.trace.json.gz"
    assert len(files) >= 3
    for number, path in enumerate(files):
        for event in slices(path):
            assert number * 5e6 <= event["ts"] <= event["ts"] + event["dur"] <= (number + 1) * 5e6 + 0.01
    # The parts of a slice that is in two files add up to it.
    whole = sum(event["dur"] for event in slices(run.out / "trace.json.gz"))
    assert math.isclose(sum(event["dur"] for path in files for event in slices(path)), whole, rel_tol=1e-3)


@pytest.mark.parametrize("arguments, problem", [
    (["-f", "folded", "--from", "1s"], "--from, --to and --split are for chrome traces"),
    (["-f", "chrome", "--from", "2s", "--to", "1s"], "--to is not after --from"),
    (["-f", "chrome", "--split", "0"], "--split is less than a millisecond"),
    (["-f", "chrome", "--split", "1ms"], "more than 1000 files"),
])
def test_mistakes_are_named(run, arguments, problem):
    output = run.out.parent / "mistake"
    done = subprocess.run([support.BINARY, "export", run.out, *arguments, "-o", output], capture_output=True, text=True)
    assert done.returncode != 0 and problem in done.stderr
    if output.is_dir():
        output.rmdir()
    assert not output.exists()
