"""The newest torch on the newest CPython, as a new user installs them, against torch's own account: one row of
docs/compatibility.md (tests/matrix), without its Dynamo profile."""

import sys

import pytest

import matrix_run
import support
import test_operators

sys.path.insert(0, str(support.REPO / "tests" / "matrix"))
import cells  # noqa: E402

pytestmark = pytest.mark.root_bpf


def test_everything_is_as_torch_has_it(newest_torch, tmp_path):
    run = matrix_run.record_run(tmp_path, "dynamo", newest_torch.python, cells.pair)
    assert run.ledger["torch"].startswith(newest_torch.version)
    found = cells.cells(run)
    assert {name: text for name, text in found.items() if text != "exact"} == {}


def test_operators_are_those_of_torch_profiler(newest_torch, tmp_path):
    # Inductor needs a C++ compiler, and the interpreter has another /usr.
    run = test_operators.Run(tmp_path, newest_torch.python, "--backend", "aot_eager")
    assert run.document["torch"].startswith(newest_torch.version)
    names = {row["name"] for row in run.document["operators"]}
    assert len(names) > 20 and names <= set(run.reference) | {"torch::autograd::GraphRoot"}, names - set(run.reference)
    assert {"aten::sort", "aten::cumsum", "aten::_softmax", "aten::mm", "MmBackward0"} <= names
