"""The newest torch on the newest CPython, as a new user installs them, against torch's own account: one row of
docs/compatibility.md (tests/matrix), without its Dynamo profile."""

import sys

import pytest

import matrix_run
import support

sys.path.insert(0, str(support.REPO / "tests" / "matrix"))
import cells  # noqa: E402

pytestmark = pytest.mark.root_bpf


def test_everything_is_as_torch_has_it(newest_torch, tmp_path):
    run = matrix_run.record_run(tmp_path, "dynamo", newest_torch.python, cells.pair)
    assert run.ledger["torch"].startswith(newest_torch.version)
    found = cells.cells(run)
    assert {name: text for name, text in found.items() if text != "exact"} == {}
