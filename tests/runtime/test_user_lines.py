"""The user's lines a compile spends its time on, and who waits for the compile lock: compiles that stand
still at known places, for a known time."""

import json
import time
from pathlib import Path
from typing import NamedTuple

import pytest

import samples
import support

pytestmark = pytest.mark.root_bpf

STUCK = support.REPO / "tests" / "programs" / "stuck_compile.py"
PLACES = ("tracing", "retracing", "waiting")
HELD = 1.5  # seconds at each place, at least


class Held(NamedTuple):
    rows: list
    dynprof: support.Dynprof
    out: Path
    longest_s: float  # at a place, as it was


@pytest.fixture(scope="module")
def held(require_root_bpf, venv_python, tmp_path_factory):
    folder = tmp_path_factory.mktemp("lines")
    target = support.spawn([venv_python, STUCK, "idle", *PLACES], ready="^at idle", timeout=120)
    dynprof = support.Dynprof(folder)
    try:
        out = folder / "out"
        run = dynprof.start("--pid", target.pid, "-F", 99, "-o", out)
        samples.wait_until_sampling(run)
        longest_s = 0
        for place in PLACES:
            target.send("")
            target.wait_for(f"^at {place}", timeout=60)
            begin = time.monotonic()
            time.sleep(HELD)
            longest_s = max(longest_s, time.monotonic() - begin)
        target.send("")
        target.wait_for("^done", timeout=60)
        assert target.wait() == 0, target.text
        done = run.wait()
        assert done.rc == 0, done
        ledger = json.loads((out / "compiles.json").read_text())
        yield Held(ledger["compiles"], dynprof, out, longest_s)
    finally:
        dynprof.close()
        target.kill()


def line_of(statement):
    lines = STUCK.read_text().splitlines()
    return next(i + 1 for i, line in enumerate(lines) if line.strip() == statement)


def row_of(rows, function, attempt=0):
    found = [row for row in rows if (row["function"], row["attempt"]) == (function, attempt)]
    assert found, [(row["function"], row["attempt"]) for row in rows]
    return found[0]


def test_the_line_dynamo_traces(held):
    lines = row_of(held.rows, "breaks", attempt=1)["user_lines"]
    assert (lines[0]["file"], lines[0]["line"], lines[0]["function"]) == (
        str(STUCK), line_of("* traced_constant()"), "Block.forward")
    assert 0.6 * HELD < lines[0]["tracing_s"] < 1.2 * held.longest_s
    assert lines[0]["lowering_s"] == lines[0]["retracing_s"] == 0


def test_the_line_aotautograd_traces_again(held):
    lines = row_of(held.rows, "with_op")["user_lines"]
    best = max(lines, key=lambda line: line["retracing_s"])
    assert (best["file"], best["line"]) == (str(STUCK), line_of("return slow_op(x)"))
    assert 0.6 * HELD < best["retracing_s"] < 1.2 * held.longest_s


def test_who_waited_for_the_compile_lock(held):
    waiters = row_of(held.rows, "plain")["lock_waiters"]
    assert len(waiters) == 1
    assert waiters[0]["thread"] == row_of(held.rows, "other")["thread"]
    assert 0.6 * HELD < waiters[0]["wait_s"] < 1.4 * held.longest_s + 0.3
    assert all(not row["lock_waiters"] for row in held.rows if row["function"] != "plain")


def test_the_report_names_the_threads_and_the_compile(held):
    rows, dynprof, out, _ = held
    report = dynprof.run("report", out).out
    waiter, holder = row_of(rows, "other")["thread"], row_of(rows, "plain")["thread"]
    line = next(line for line in report.splitlines() if line.startswith("  compile lock "))
    # "second" is what the program calls the thread; the operating system knows no such name.
    assert f"thread {waiter} (second) waited " in line, report
    assert f" for thread {holder} (" in " ".join(report.split()), report
    table = report[report.index("# Waits, of all threads") :]
    waits = [row.split() for row in table.splitlines() if " compile lock " in row]
    seconds = sum(float(row[0]) for row in waits if row[0][0].isdigit())
    assert 0.6 * HELD < seconds < 1.4 * held.longest_s + 0.3, table


def test_the_page_of_the_compile_names_the_line(held):
    _, dynprof, out, _ = held
    page = dynprof.run("report", out, "--compile", "0/0").out
    rows = [line for line in page.splitlines() if line.endswith(" Block.forward")]
    assert any(f"stuck_compile.py:{line_of('* traced_constant()')}" in row for row in rows), page
    assert "waited some" in page  # ids begin anew at a reset: the compile that was waited for is 0/0 too
