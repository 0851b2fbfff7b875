"""Trace ids, kinds, attempts and CPU seconds of a cold compile, against what torch and the job say.

The job (programs/compile_job.py) compiles a function twice (a recompile), its lazy backward, and
one with a graph break (a second attempt, a resume function). Its truth: torch's own compilation
metrics, and clocks around every compile, taken by the compiling thread.
"""

import pytest

import samples

pytestmark = pytest.mark.root_bpf

HERTZ = 999
RIGHT = 0.99


def expected_compiles(truth):
    """{(trace id, kind, attempt)} by torch's own metrics. A restart is an attempt of its own; a set
    of reasons is all that torch keeps, so how many is only known where they are none or one."""
    expected = set()
    for row in truth["metrics"]:
        kind = "forward" if row["is_forward"] else "backward"
        restarts = len(row.get("restart_reasons", []))
        assert restarts <= 1, "this job restarts no compile twice"
        expected |= {(row["compile_id"], kind, attempt) for attempt in range(restarts + 1)}
    return expected


def ledger_compiles(ledger):
    rows = [(row["trace_id"], row["kind"], row["attempt"]) for row in ledger["compiles"]]
    assert len(rows) == len(set(rows)), f"a compile is there twice: {rows}"
    return set(rows)


def test_the_job_did_what_these_tests_need(compile_run):
    expected = expected_compiles(compile_run.truth)
    assert ("0/0", "backward", 0) in expected
    assert ("0/1", "forward", 0) in expected  # a recompile
    assert ("1/0", "forward", 1) in expected  # a second attempt
    clocks = {(row["id"], row["kind"]) for row in compile_run.truth["compiles"]}
    assert clocks == {(trace_id, kind) for trace_id, kind, _ in expected}
    for row in compile_run.truth["compiles"]:
        if row["kind"] == "forward":
            attempts = {a for i, k, a in expected if (i, k) == (row["id"], "forward")}
            assert len(row["attempts"]) == len(attempts)


def test_compiles_equal_torchs_own_metrics(compile_run):
    assert ledger_compiles(compile_run.ledger) == expected_compiles(compile_run.truth)


def test_compiles_of_an_untouched_process(eager_run):
    assert ledger_compiles(eager_run.ledger) == expected_compiles(eager_run.truth)


class Truth:
    """Which compile was open on a thread at a moment: the innermost one."""

    def __init__(self, truth):
        self._rows = sorted(truth["compiles"], key=lambda row: row["end"] - row["begin"])
        self._contexts = truth["contexts"]

    def at(self, sample):
        """The compile that it was taken in."""
        return self._find(self._rows, sample)

    def has_id(self, sample):
        """Whether torch had a trace id for its thread: from a moment before its compile on."""
        return self._find(self._rows, sample) or self._find(self._contexts, sample)

    @staticmethod
    def _find(rows, sample):
        for row in rows:
            if row["tid"] == sample.tid and row["begin"] <= sample.time_ns <= row["end"]:
                return row
        return None


MARKERS = (
    ("_compile", "torch/_dynamo/convert_frame.py"),
    ("get_or_compile", "_aot_autograd/runtime_wrappers.py"),
)


def is_marker(frame):
    return any(frame.name == name and frame.file.endswith(file) for name, file in MARKERS)


def has_marker(dump, cache, number):
    if number not in cache:
        cache[number] = any(is_marker(frame) for frame in dump.stack(number))
    return cache[number]


def test_samples_carry_the_right_id(compile_run):
    dump, truth, cache = compile_run.dump, Truth(compile_run.truth), {}
    right, wrong = 0, []
    for sample in dump.of_pid(compile_run.truth["pid"]):
        row = truth.at(sample)
        if row is None or not has_marker(dump, cache, sample.stack):
            continue
        found = dump.compiles[sample.compile] if sample.compile >= 0 else None
        if found and (found["id"], found["kind"]) == (row["id"], row["kind"]):
            right += 1
        else:
            wrong.append((row["id"], row["kind"], found and (found["id"], found["kind"])))
    assert right + len(wrong) > 5000, "too few samples to say anything"
    assert right >= RIGHT * (right + len(wrong)), f"{len(wrong)} wrong of {right}: {wrong[:5]}"
    named = [entry for entry in wrong if entry[2] is not None]
    assert not named, f"carry another compile's id: {named[:5]}"


def test_samples_outside_compiles_carry_none(compile_run):
    truth = Truth(compile_run.truth)
    taken = compile_run.dump.of_pid(compile_run.truth["pid"])
    outside = [sample for sample in taken if not truth.has_id(sample)]
    wrong = [sample for sample in outside if sample.compile >= 0]
    assert outside
    assert not wrong, f"{len(wrong)} of {len(outside)}"


def test_samples_carry_the_right_attempt(compile_run):
    threads = samples.ByThread(compile_run.dump.of_pid(compile_run.truth["pid"]))
    right = total = 0
    for row in compile_run.truth["compiles"]:
        for attempt, (begin, end) in enumerate(row["attempts"]):
            for sample in threads.between(row["tid"], begin, end):
                found = compile_run.dump.compiles[sample.compile] if sample.compile >= 0 else None
                total += 1
                right += bool(found) and (found["id"], found["attempt"]) == (row["id"], attempt)
    assert right >= RIGHT * total, f"{right} of {total}"


def seconds_by_compile(ledger, field):
    seconds = {}
    for row in ledger["compiles"]:
        key = (row["trace_id"], row["kind"])
        seconds[key] = seconds.get(key, 0.0) + row[field]
    return seconds


def test_cpu_seconds_agree_with_the_threads_clock(compile_run):
    """For compiles of a second and more: what their samples stand for, and what the scheduler tells.

    A thread's CPU clock leaves out what the hypervisor took from its CPU (CONFIG_PARAVIRT_TIME_ACCOUNTING);
    the times of samples and switches do not.
    """
    stolen = compile_run.stolen_s
    clocks = {
        (row["id"], row["kind"]): row["cpu_ns"] / 1e9
        for row in compile_run.truth["compiles"]
        if row["cpu_ns"] >= 1e9
    }
    assert len(clocks) >= 2, "too few compiles of a second or more"
    for field in ("cpu_s", "on_cpu_s"):
        found = seconds_by_compile(compile_run.ledger, field)
        pairs = {key: (clock, found[key]) for key, clock in clocks.items()}
        off = [
            key
            for key, (clock, ours) in pairs.items()
            if not -0.02 * clock <= ours - clock <= 0.02 * clock + stolen
        ]
        assert not off, f"{field}: (clock, ours): {pairs}, {stolen:.2f} s stolen from all CPUs"


def test_rows_name_the_function(compile_run):
    rows = compile_run.ledger["compiles"]
    for metric in compile_run.truth["metrics"]:
        if not metric["is_forward"]:
            continue
        for row in rows:
            if (row["trace_id"], row["kind"]) == (metric["compile_id"], "forward"):
                assert row["function"] == metric["co_name"]
                assert row["file"] == metric["co_filename"]
                assert row["line"] == metric["co_firstlineno"]


def test_rows_name_process_and_thread(compile_run):
    threads = {(row["id"], row["kind"]): row["tid"] for row in compile_run.truth["compiles"]}
    assert len(set(threads.values())) == 2  # the graph break is on a thread of its own
    for row in compile_run.ledger["compiles"]:
        assert row["process"] == compile_run.truth["pid"]
        assert row["thread"] == threads[row["trace_id"], row["kind"]]
        # The thread of the graph break ends right after it: where no later sample shows it outside
        # the compile, nothing says that the compile ended.
        if row["thread"] == compile_run.truth["pid"]:
            assert row["complete"] is True, row


def test_begin_and_wall_time(compile_run):
    """From samples alone begin and end are known to the first and last sample on the CPU."""
    for truth in compile_run.truth["compiles"]:
        rows = [
            row
            for row in compile_run.ledger["compiles"]
            if (row["trace_id"], row["kind"]) == (truth["id"], truth["kind"])
        ]
        begin = min(row["start_ns"] for row in rows)
        assert truth["begin"] - 5e6 <= begin <= truth["end"]
        wall = sum(row["wall_s"] for row in rows)
        true_wall = (truth["end"] - truth["begin"]) / 1e9
        assert wall <= true_wall + 0.005
        assert wall >= 0.9 * true_wall - 0.1, f"{truth['id']}: {wall} of {true_wall}"
