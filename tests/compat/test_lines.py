"""Our lines are CPython's lines: every code unit of torch/_inductor and torch/_dynamo, and of code
made to be awkward, on every CPython from 3.10 on that is found here."""

import re
import subprocess
from pathlib import Path

import pytest

import support

ORACLE = Path(__file__).with_name("line_oracle.py")
LINE_DUMP = support.BUILD / "tests" / "line_dump"

# The location table is the same in later versions: whatever CPython is found must agree.
pytestmark = pytest.mark.pythons("3.10", "3.99")


@pytest.fixture(scope="module")
def torch_sources(venv_python):
    find = subprocess.run(
        [venv_python, "-I", "-c",
         "import importlib.util as u; s = u.find_spec('torch'); print(s.origin if s else '')"],
        capture_output=True, text=True, check=True)
    origin = find.stdout.strip()
    assert origin, f"no torch in {support.VENV}"
    return [Path(origin).parent / name for name in ("_inductor", "_dynamo")]


def compare(interpreter, arguments, *options):
    """Runs oracle | line_dump; returns their counts and line_dump's exit status."""
    assert LINE_DUMP.exists(), f"{LINE_DUMP} does not exist: run make test-binaries"
    oracle = subprocess.Popen([interpreter.path, "-I", ORACLE, *arguments],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    dump = subprocess.run([LINE_DUMP, *options], stdin=oracle.stdout, capture_output=True,
                          text=True, check=False, timeout=600)
    oracle.stdout.close()
    said = oracle.stderr.read().decode()
    oracle.stderr.close()
    assert dump.returncode in (0, 1), dump.stderr + said
    assert oracle.wait() == 0, said
    assert dump.stdout.startswith("python={}.{} ".format(*interpreter.minor))
    found = re.findall(r"(\w+)=(\d+)\b(?!\.)", said + dump.stdout)
    counts = {key: int(value) for key, value in found}
    print(f"{said}{dump.stdout}{dump.stderr}")
    for mistake in ("lost_line", "entry_before"):
        print(f"a decoder with mistake {mistake}: {counts[mistake] / counts['units']:.1%} wrong")
    return counts, dump.returncode


def test_torch_sources(interpreter, torch_sources):
    counts, status = compare(interpreter, ["sources", *torch_sources])
    assert counts["mismatches"] == 0 and status == 0
    assert counts["disagree"] == 0, "co_lines() and co_positions() differ"
    assert counts["units"] > 100_000
    assert counts["no_line"] > 0
    assert counts["not_compiled"] < counts["files"]


def test_generated_code(interpreter):
    counts, status = compare(interpreter, ["generated"])
    assert counts["mismatches"] == 0 and status == 0
    assert counts["disagree"] == 0, "co_lines() and co_positions() differ"
    assert counts["points"] > 300, "frames that really ran"
    # Inductor's call() of 5,000 launches; the pairs of 3.10 are smaller.
    assert counts["call_table"] > (40_000 if interpreter.minor == (3, 10) else 250_000)


def test_wrong_lines_are_noticed(interpreter):
    counts, status = compare(interpreter, ["generated"], "--self-check")
    assert status == 1
    assert counts["mismatches"] >= counts["units"] // 1000
