"""The same native frames as libdw finds, in a torch process stopped at random moments. The script
tests/bench/compare_libdw.py does it more often."""

import sys

import pytest

import support

sys.path.insert(0, str(support.REPO / "tests" / "bench"))

import compare_libdw  # noqa: E402

pytestmark = pytest.mark.root_bpf


def test_a_torch_process(venv_python, record_property):
    program = support.REPO / "tests" / "programs" / "busy_torch.py"
    counts, differing = compare_libdw.compare([venv_python, program], stops=12, seconds=3)
    record_property("counts", counts)
    assert counts["stops"] == 12
    described = counts["stacks"] - counts["undescribed"]
    assert described >= 3 * 12
    assert not differing
    # Where libdw gives up there is little to compare with.
    assert counts["libdw_failed"] <= 0.02 * described, counts
    assert counts["whole"] >= 0.98 * described, counts
