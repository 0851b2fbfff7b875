"""The newest torch on the newest CPython, as a new user installs them, against torch's own account: one row of
docs/compatibility.md (tests/matrix), without its Dynamo profile. The wheels (5 GB unpacked) stay in the cache
directory."""

import os
import re
import sys
from pathlib import Path

import pytest

import matrix_run
import support

sys.path.insert(0, str(support.REPO / "tests" / "matrix"))
import cells  # noqa: E402
import wheels  # noqa: E402

pytestmark = pytest.mark.root_bpf

PYTHON = "3.15"
TORCH = re.search(r"(?m)^torch==(\S+)", (support.REPO / "tests" / "requirements-newest.txt").read_text())[1]
CACHE = Path(os.environ.get("DYNPROF_CACHE", Path.home() / ".cache" / "dynprof-bpf")) / "newest"


@pytest.fixture(scope="module")
def python(require_root_bpf, tmp_path_factory):
    """A program that becomes that CPython with that torch."""
    found = [one.path for one in support.unpacked_interpreters() if one.minor == (3, 15)]
    if not found:
        pytest.skip(f"CPython {PYTHON} could not be had (scripts/interpreters.sh)")
    CACHE.mkdir(parents=True, exist_ok=True)
    try:
        site = wheels.install(CACHE, PYTHON, TORCH)
    except wheels.NotInstalled as why:
        pytest.skip(f"torch {TORCH} for CPython {PYTHON}: {why}")
    return wheels.python_with(site, found[0], tmp_path_factory.mktemp("newest") / "python")


def test_everything_is_as_torch_has_it(python, tmp_path):
    run = matrix_run.record_run(tmp_path, "dynamo", python, cells.pair)
    assert run.ledger["torch"].startswith(TORCH)
    found = cells.cells(run)
    assert {name: text for name, text in found.items() if text != "exact"} == {}
