"""Counts of runs of compiled regions, compared with a job that counts its own calls."""

import collections
import json

import pytest

import json_schema
import samples
import support

JOB = support.REPO / "tests" / "programs" / "steady_job.py"

# Hits of the probes in ten seconds, and in one, above which less is counted (DP_RUN_HITS_PER_SECOND,
# DP_RUN_HITS_SECONDS, DP_RUN_HITS_AT_ONCE). A run of a region hits four of them; when lengths are not measured any
# more, one.
HITS = 10_000
AT_ONCE = 1_500


class Run:
    def __init__(self, folder, python, *arguments, batches=0, options=()):
        target = support.spawn(
            [python, JOB, folder / "truth.json", *arguments],
            timeout=180,
            env={"TMPDIR": str(folder)},
        )
        dynprof = support.Dynprof(folder)
        try:
            target.wait_for("^ready", timeout=120)
            out = folder / "out"
            run = dynprof.start("--pid", target.pid, "-o", out, *options)
            samples.wait_until_sampling(run)
            for _ in range(max(batches, 1)):
                target.send("go")
                if batches:
                    target.wait_for("^batch", timeout=120)
            target.wait_for("^done", timeout=300)
            target.send("end")
            assert target.wait() == 0, target.text
            done = run.wait()
            assert done.rc == 0, done
            self.text = done.out + done.err
        finally:
            dynprof.close()
            target.kill()
        self.truth = json.loads((folder / "truth.json").read_text())
        self.document = json.loads((out / "compiles.json").read_text())
        self.runs = self.document["runs"]
        self.regions = {
            ("backward " if row["backward"] else "") + (row["trace_id"] or "-"): row for row in self.runs["regions"]
        }


@pytest.fixture(scope="module")
def slow(require_root_bpf, venv_python, tmp_path_factory):
    return Run(tmp_path_factory.mktemp("slow"), venv_python)


@pytest.fixture(scope="module")
def busy(require_root_bpf, venv_python, tmp_path_factory):
    return Run(tmp_path_factory.mktemp("busy"), venv_python, "--fast", "5", "--rate", "300", batches=1)


@pytest.fixture(scope="module")
def untimed(require_root_bpf, venv_python, tmp_path_factory):
    return Run(tmp_path_factory.mktemp("untimed"), venv_python, "--fast", "8", "--rate", "1200", batches=1)


@pytest.fixture(scope="module")
def fast(require_root_bpf, venv_python, tmp_path_factory):
    return Run(tmp_path_factory.mktemp("fast"), venv_python, "--fast", "8", batches=1)


@pytest.fixture(scope="module")
def everything(require_root_bpf, venv_python, tmp_path_factory):
    folder = tmp_path_factory.mktemp("everything")
    return Run(folder, venv_python, "--fast", "5", batches=1, options=["--count-all-runs"])


def test_every_run_is_counted(slow):
    calls = collections.Counter()
    for name, row in slow.regions.items():
        calls[name.split("/")[0]] += row["calls"]
    # By function: torch compiles one again where another thread is at its guards.
    assert calls == slow.truth["calls"]
    assert slow.regions["0/1"]["calls"] == 50
    assert all(row["complete"] for row in slow.regions.values())
    assert slow.runs["processes"][0]["complete"]


def test_every_run_has_a_length(slow):
    for name, row in slow.regions.items():
        # The first backward shows where a node has its instance: until that is known an event counts it. In the
        # first run of 2/0 torch compiles 3/0. On a busy machine a second backward was over before that was known.
        untimed = 2 if row["backward"] else 1 if name == "2/0" else 0
        assert row["calls"] - untimed <= row["timed"] <= row["calls"], name
        assert 0 < row["run_s"] < 0.5, name
        assert row["self_s"] <= row["run_s"], name


def test_the_search_is_timed_for_regions(slow):
    for name, row in slow.regions.items():
        if row["backward"]:
            assert row["searches"] == 0 and row["search_s"] is None
            continue
        # torch searches before each call; the search before a compile finds nothing, and counts too.
        assert row["searches"] >= row["calls"] - 1, name
        assert 0 < row["search_s"] < 0.001, name


def test_a_region_inside_another_is_not_counted_twice(slow):
    # What follows a graph break is called by the bytecode of the region before it.
    assert slow.regions["2/0"]["self_s"] < slow.regions["2/0"]["run_s"]
    assert slow.regions["3/0"]["self_s"] == slow.regions["3/0"]["run_s"]


def test_rows_have_the_documented_schema(slow, untimed, fast):
    for run in (slow, untimed, fast):
        assert json_schema.compiles_problems(run.document) == []


def test_functions_are_named(slow):
    assert slow.regions["0/0"]["function"] == "small"
    assert slow.regions["0/0"]["file"].endswith("steady_job.py")
    assert slow.regions["3/0"]["function"].startswith("torch_dynamo_resume_in_broken_at_")


def test_runs_that_are_not_sent_are_counted(busy):
    (batch,) = busy.truth["batches"]
    assert batch["calls"] / batch["seconds"] > 200, "the job is too slow for this test"
    assert busy.regions["0/0"]["calls"] == batch["calls"]
    assert busy.regions["0/0"]["timed"] >= batch["calls"] - 1
    assert busy.regions["0/0"]["complete"]
    assert "more than 200 times a second" in busy.text


def test_a_region_above_the_first_limit_is_only_counted(untimed):
    (batch,) = untimed.truth["batches"]
    assert HITS > batch["calls"] > AT_ONCE, "the job is too slow for this test"
    (process,) = untimed.runs["processes"]
    assert process["complete"] and process["timed_s"] < process["counted_s"]
    row = untimed.regions["0/0"]
    assert row["calls"] == batch["calls"]
    assert row["complete"] and row["searches"] <= row["timed"] + 1
    # The limit is reached within a second, or twice if it began in between.
    assert AT_ONCE / 8 < row["timed"] < AT_ONCE / 2
    assert 0 < row["run_s"] < 0.001
    assert row["share"] == pytest.approx(row["calls"] * row["self_s"] / process["counted_s"], rel=0.01)
    assert f"~{100 * row['share']:.1f}%" in untimed.text
    assert "ran regions too often to time every run" in " ".join(untimed.text.replace("#", " ").split())


def test_all_runs_are_counted_and_timed_on_request(everything):
    (batch,) = everything.truth["batches"]
    assert batch["calls"] > 2 * HITS, "the job is too slow for this test"
    (process,) = everything.runs["processes"]
    assert process["complete"] and process["timed_s"] == process["counted_s"]
    row = everything.regions["0/0"]
    assert row["calls"] == batch["calls"] and row["timed"] >= batch["calls"] - 1
    assert "too often" not in everything.text


def test_a_fast_region_has_a_lower_bound(fast):
    (batch,) = fast.truth["batches"]
    assert batch["calls"] > 3 * HITS, "the job is too slow for this test"
    (process,) = fast.runs["processes"]
    assert not process["complete"]
    row = fast.regions["0/0"]
    assert not row["complete"] and row["share"] is None
    # Either limit is reached within a second, or twice if it began in between.
    assert AT_ONCE < row["calls"] < 3 * AT_ONCE
    assert 0 < row["run_s"] < 0.001
    assert row["cpu_share"] > 0.05
    assert f">= {row['calls']:,}" in fast.text
    assert "ran regions too often to count every run" in " ".join(fast.text.replace("#", " ").split())
