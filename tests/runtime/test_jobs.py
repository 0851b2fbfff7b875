"""Six jobs as people have them (tests/programs/jobs), attached to by pid: what the report's summary answers, against
torch's own account of each job.

  lengths  an encoder that is compiled anew for each length of its input, breaks its graph, and reaches the limit
  server   threads that meet their first requests at once, and wait for torch's compile lock
  loader   training that waits for a DataLoader, on a machine on which others work too
  ranks    two DDP ranks, one of which compiles more
  stuck    a compile that does not end, attached to in the middle of it
  warm     the second run of a job, whose compiled code comes out of Inductor's caches

And one that is made for the tests: "causes" gives torch a cause for each suggestion that the report knows, so that
each is tried on torch's own words.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

import samples
import support

pytestmark = pytest.mark.root_bpf

JOBS = support.REPO / "tests" / "programs" / "jobs"
STUCK_S = 12
SIX = ("lengths", "server", "loader", "ranks", "stuck", "warm")
REPORT = support.REPO / "symbolizer" / "report"
TITLES = set(re.findall(r'\badd\("([^"]+)"', (REPORT / "summary.cpp").read_text()))
# {name: change}, see SuggestionRule.
RULE = r'\{"([a-z0-9.-]+)", k\w+, "[^"]*",\s*"((?:[^"\\]|\\.)*)"'
RULES = dict(re.findall(RULE, (REPORT / "suggestions.cpp").read_text()))
# What none of the jobs can show; a unit test has torch's words.
NOT_HERE = {
    "device": "takes two GPUs",
    "grad-mode": "other words of torch's for global-state",
    "print-2.6": "words of torch 2.6",
    "branch-2.6": "has the change of branch",
    "context-manager": "torch 2.13 traces those that are known here",
    "autotuning": "takes a GPU",
    "triton-kernels": "needs Triton: test_triton.py",
}


@dataclass
class Job:
    truth: dict  # what torch says, {} for several processes
    folder: object  # the recording
    report: str
    rows: list  # of compiles.json
    extra: dict  # what was seen while it ran

    def summary(self):
        """{title: [text]} of the lines before the compile table."""
        entries, found = [], {}
        for line in self.report.splitlines()[1:]:
            if line.startswith("#"):
                break
            if line[2] != " ":
                entries.append([line[2:17].strip(), line[17:]])
            else:
                entries[-1][1] += " " + line.strip()
        for title, text in entries:
            found.setdefault(title, []).append(text)
        return found

    def words(self):
        """The report without line ends, so that what is wrapped is found."""
        return " ".join(self.report.replace("\n#", "\n").split())

    def full(self):
        """The entries below the table, which are not cut."""
        return " ".join(self.report.partition("# In full: ")[2].partition("\n#\n")[0].split())


def line_of(job, comment):
    lines = (JOBS / job).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(comment))


def spawn(name, python, folder, *arguments):
    environment = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"), "TMPDIR": str(folder)}
    return support.spawn([python, JOBS / f"{name}.py", *arguments], timeout=120, env=environment)


def run_bare(folder, python):
    target = spawn("warm", python, folder, folder / "cold.json")
    try:
        target.send("go")
        assert target.wait(timeout=240) == 0, target.text
    finally:
        target.kill()


def record(name, folder, python, *arguments, middle=None, begin=None, others=0):
    """Runs a job under a recording that is attached before its first compile, or when `begin` returned; beside it, so
    many other programs."""
    out, truth = folder / name, folder / f"{name}.json"
    target = spawn(name, python, folder, folder if name == "ranks" else truth, *arguments)
    dynprof = support.Dynprof(folder)
    extra = {}
    try:
        if begin:
            begin(target)
        run = samples.start_recording(dynprof, out, "-p", target.pid, hertz=99)
        if not begin:
            target.send("go")
        if middle:
            extra = middle(target, dynprof)
            run.interrupt()
        else:
            with busy(others):
                assert target.wait(timeout=240) == 0, target.text
        done = run.wait(timeout=120)
        assert done.rc == 0, done
        if middle:
            assert target.wait(timeout=60) == 0, target.text
        return Job(
            truth=json.loads(truth.read_text()) if truth.exists() else {},
            folder=out,
            report=(out / "report.txt").read_text(),
            rows=json.loads((out / "compiles.json").read_text())["compiles"],
            extra=extra,
        )
    finally:
        dynprof.close()
        target.kill()


def in_the_middle(target, dynprof):
    time.sleep(2)
    open_now = json.loads(dynprof.run("compiles", "-p", target.pid, "--json").out)
    dumped = json.loads(dynprof.run("dump", "-p", target.pid, "--json").out)
    pages = int(Path(f"/proc/{target.pid}/statm").read_text().split()[1])
    return {"compiles": open_now, "dump": dumped, "rss_bytes": pages * os.sysconf("SC_PAGE_SIZE")}


def compiling(target):
    target.send("go")
    target.wait_for("^compiling", timeout=60)
    time.sleep(1)


@contextlib.contextmanager
def busy(count):
    """Programs that want all of the machine's CPUs: each in a session of its own, between which the kernel shares."""
    argv = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(argv, start_new_session=True) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


@pytest.fixture(scope="module")
def jobs(require_root_bpf, venv_python, tmp_path_factory):
    folder, known = tmp_path_factory.mktemp("jobs"), {}

    def made(name):
        if name == "stuck":
            return record(name, folder, venv_python, STUCK_S, begin=compiling, middle=in_the_middle)
        if name == "loader":
            return record(name, folder, venv_python, others=2)
        if name == "causes":  # with compiles that wait for a CPU
            return record(name, folder, venv_python, others=2 * os.cpu_count())
        if name == "warm":
            run_bare(folder, venv_python)
        return record(name, folder, venv_python)

    def job(name):
        if name not in known:
            known[name] = None
            known[name] = made(name)
        assert known[name], f"{name} could not be recorded: see the first test"
        return known[name]

    return job


def last_attempts(rows):
    last = {}
    for row in rows:
        last[row["process"], row["kind"], row["trace_id"], row["repeat"]] = row
    return list(last.values())


# ---- what was compiled, and for how long ---------------------------------------------------------


@pytest.mark.parametrize("name", ["lengths", "server", "warm"])
def test_every_compile_is_there_with_torchs_time(jobs, name):
    job = jobs(name)
    ours = {(row["trace_id"], row["kind"]): row for row in last_attempts(job.rows)}
    for theirs in job.truth["compiles"]:
        row = ours[theirs["id"], "forward" if theirs["forward"] else "backward"]
        assert row["torch_wall_s"] == pytest.approx(theirs["wall_s"], abs=1e-5), row
        assert row["recompile_reason"] == theirs["reason"]
    wall = sum(row["wall_s"] - row["nested_wall_s"] for row in job.rows)
    [compiling] = job.summary()["Compiling"]
    assert float(compiling.split()[0]) <= wall + 0.02
    [longest] = job.summary()["Longest"]
    slowest = max(job.rows, key=lambda row: row["wall_s"])
    assert longest.startswith(f"{slowest['trace_id']}"), (longest, slowest)


# ---- lengths: why was it compiled again, and what is to be changed? ------------------------------


def test_recompiles_are_one_line_with_reason_and_limit(jobs):
    job = jobs("lengths")
    forward = [c for c in job.truth["compiles"] if c["function"] in ("forward", None) and c["reason"]]
    again = [c for c in forward if not c["failed"]]
    assert len(again) == job.truth["limit"] - 1 and any(c["failed"] for c in forward)
    line = next(text for text in job.summary()["Recompiled"] if text.startswith("Classifier.forward"))
    assert ("once," if len(again) == 1 else f"{len(again)} times,") in line
    assert "limit reached, now eager" in line
    assert forward[-1]["reason"] in job.full() or again[-1]["reason"] in job.full()


def test_what_failed_and_what_broke_the_graph(jobs):
    job = jobs("lengths")
    [failed] = job.summary()["Failed"]
    assert failed.startswith("2/0: BackendCompilerFailed")
    assert "this backend has no license" in job.full()
    [breaks] = job.summary()["Graph breaks"]
    count = sum(job.truth["breaks"].values())
    assert breaks.startswith(f"{count} at lengths.py:{line_of('lengths.py', '# BREAK')}: ")


def test_the_advice_fits(jobs):
    job = jobs("lengths")
    assert job.summary()["Suggestion"], "the summary always has the best one"
    assert "mark_dynamic(tokens, 1) or dynamic=True" in job.full()
    assert "reorderable_logging_functions.add(print)" in job.full()
    assert "raise torch._dynamo.config.recompile_limit" in job.full()


def test_costs_that_the_next_run_does_not_have(jobs):
    [one_off] = jobs("lengths").summary()["One-off"]
    assert "precompiled header" in one_off or "instruction-set probe" in one_off


# ---- server: who waits for whom? -----------------------------------------------------------------


def test_who_holds_the_compile_lock(jobs):
    job = jobs("server")
    tids = {name: thread["tid"] for name, thread in job.truth["threads"].items()}
    begun = sorted(job.truth["compiles"], key=lambda c: c["begin_us"])
    compiled_by = {row["trace_id"]: row["thread"] for row in job.rows}
    order = [compiled_by[c["id"]] for c in begun]
    assert sorted(order) == sorted(tids.values())
    waits = re.findall(
        r"compile lock thread (\d+) \((\S+)\) waited ([\d.]+) s for thread (\d+) \(\S+\), which compiled (\S+)",
        job.words(),
    )
    assert waits, job.report
    waited = dict.fromkeys(order, 0.0)
    for waiter, name, seconds, holder, trace_id in waits:
        assert tids[name] == int(waiter) and compiled_by[trace_id] == int(holder)
        waited[int(waiter)] += float(seconds)
    # Each waits from its first request to the begin of its own compile.
    for thread in job.truth["threads"].values():
        own = sum(c["wall_s"] for c in begun if compiled_by[c["id"]] == thread["tid"])
        longest = thread["first_s"] - own  # and what the thread waited for a CPU and for the GIL
        assert 0.3 * longest - 0.3 <= waited[thread["tid"]] <= 1.2 * longest + 0.3
    assert any("call the function once before the threads start" in text for text in job.summary()["Suggestion"])


# ---- loader: what does the training wait for, and who has the CPUs? ------------------------------


def test_waits_for_the_loader_have_its_name(jobs):
    job = jobs("loader")
    found = re.search(r"DataLoader ([\d.]+) s \([\d,]+ times\)", job.words())
    assert found, job.report
    assert 0.5 * job.truth["waited_s"] <= float(found[1]) <= 1.1 * job.truth["waited_s"] + 0.1


def test_others_on_the_cpus(jobs):
    [text] = jobs("loader").summary()["Interference"]
    share = float(re.search(r"used (\d+) % of the", text)[1])
    assert share > 10 and "python" in text


# ---- ranks: what did one of them do that the others did not? -------------------------------------


def accounts(job):
    return [json.loads((job.folder.parent / f"rank-{rank}.json").read_text()) for rank in (0, 1)]


def test_ranks_are_compared(jobs):
    job = jobs("ranks")
    compiled = [
        {("" if c["forward"] else "backward ") + c["id"] for c in account["compiles"]} for account in accounts(job)
    ]
    more = compiled[1] - compiled[0]
    assert more and not compiled[0] - compiled[1]
    [text] = job.summary()["Ranks"]
    named = re.fullmatch(r"2 ranks: rank 1 also compiled (.+)", text)
    assert named, text
    assert set(named[1].split(", ")) == more
    assert re.search(r"(?m)^# +Rank Trace id", job.report)


def test_what_both_compiled_alike_is_one_row(jobs):
    job = jobs("ranks")
    compiled = [{c["id"] for c in account["compiles"] if c["forward"]} for account in accounts(job)]
    folded = set(re.findall(r"(?m)^ +0-1 (\d+/\d+) ", job.report))
    assert folded and folded <= compiled[0] & compiled[1], job.report
    alone = set(re.findall(r"(?m)^ +1 (\d+/\d+) ", job.report))
    assert compiled[1] - compiled[0] <= alone, job.report


def test_a_child_has_all_facts_though_it_ended_before(jobs):
    job = jobs("ranks")
    for account in accounts(job):
        ours = {row["trace_id"]: row for row in last_attempts(job.rows)
                if row["process"] == account["pid"] and row["kind"] == "forward"}
        for theirs in account["compiles"]:
            if not theirs["forward"]:
                continue
            row = ours[theirs["id"]]
            assert row["recompile_reason"] == theirs["reason"], row
            assert row["torch_wall_s"] == pytest.approx(theirs["wall_s"], abs=1e-5), row
    assert any(row["recompile_reason"] for row in job.rows)
    assert "intends" in job.full(), "DDPOptimizer's splits are not the user's graph breaks"


# ---- stuck: since when, and where? ---------------------------------------------------------------


def test_a_compile_that_does_not_end(jobs):
    job = jobs("stuck")
    [text] = job.summary()["Compiling"]
    assert "1 compile of 1 function" in text
    assert "1 had begun before" in text and "1 still open at the end" in text
    recorded = float(re.search(r"of the ([\d.]+) s recorded", text)[1])
    [row] = job.rows
    assert row["wall_s"] <= recorded + 0.01 and not row["complete"]
    top = re.search(r"(?m)^ +([\d.]+)% +([\d.]+)% +\S+ +\S*stuck\.py:(\d+) ", job.report)
    assert int(top[3]) == line_of("stuck.py", "# SPIN") and float(top[2]) > 50


def test_its_age_while_it_runs(jobs):
    job = jobs("stuck")
    [thread] = [thread for thread in job.extra["dump"]["threads"] if thread["compile"]]
    assert thread["compile"]["trace_id"] == "0/0"
    # A second before the recording began, two in it, and what attaching took.
    assert 3 <= thread["compile"]["seconds"] <= STUCK_S + 1


def test_its_age_and_place_are_the_first_line(jobs):
    job = jobs("stuck")
    first = job.report.splitlines()[1]
    assert first.startswith("  Still open "), job.report
    [text] = job.summary()["Still open"]
    assert re.match(r"0/0 answer stuck\.py:\d+ for [\d.]+ s \(began before the recording\)", text), text
    [row] = job.rows
    end = row["at_end"]
    assert not end["age_is_least"] and not end["process_ended"]
    # The recording knows what torch knew: when the compile began, which is before the recording.
    [theirs] = job.truth["compiles"]
    began_ns = theirs["begin_us"] * 1000 - (time.time_ns() - time.monotonic_ns())
    ended_ns = row["start_ns"] + row["wall_s"] * 1e9
    assert end["age_s"] == pytest.approx((ended_ns - began_ns) / 1e9, abs=0.3), (end, row)
    assert end["age_s"] > row["wall_s"] + 0.5
    assert f"{end['age_s']:.1f} s" in text
    assert (end["file"], end["line"]) == (str(JOBS / "stuck.py"), line_of("stuck.py", "# LAST")), end


def test_its_memory(jobs):
    job = jobs("stuck")
    memory = job.rows[0]["memory"]
    # Its backend only counts: the process has as much memory all the time.
    assert memory["readings"] > 1
    assert memory["peak_rss_bytes"] == pytest.approx(job.extra["rss_bytes"], rel=0.05)
    assert memory["child_peak_rss_bytes"] is None


# ---- warm: did the caches work? ------------------------------------------------------------------


def test_hits_are_torchs(jobs):
    job = jobs("warm")
    caches = job.truth["caches"]
    assert caches["fx_hits"] + caches["aot_hits"] > 0 and caches["fx_misses"] == 0
    [text] = job.summary()["Caches"]

    def words(hits, misses):
        return f"{hits} hit{'s' * (hits != 1)}, {misses} miss{'es' * (misses != 1)}"

    assert text == (
        f"FxGraphCache {words(caches['fx_hits'], caches['fx_misses'])}; "
        f"AOTAutogradCache {words(caches['aot_hits'], caches['aot_misses'])}"
    )
    assert "TORCHINDUCTOR_CACHE_DIR" not in job.report


# ---- all of them ---------------------------------------------------------------------------------


def test_every_kind_of_line_comes_from_one_of_them(jobs):
    titles = set()
    for name in SIX:
        summary = jobs(name).summary()
        assert sum(len(texts) for texts in summary.values()) <= 11
        titles |= set(summary)
    assert titles == TITLES - {"Triton", "GPU"}  # test_triton.py, test_gpu_recording.py


def test_each_cause_has_its_suggestion(jobs):
    job = jobs("causes")
    assert len(job.truth["recompiles"]) >= 12 and len(job.truth["broke"]) >= 8
    for name in job.truth["recompiles"] + job.truth["broke"]:
        assert RULES[name] in job.full(), name


def test_every_suggestion_comes_from_one_of_them(jobs):
    shown = " ".join(jobs(name).words() for name in (*SIX, "causes"))
    assert len(RULES) > 25
    missing = {name for name, change in RULES.items() if change.replace('\\"', '"') not in shown}
    assert missing <= set(NOT_HERE), missing
