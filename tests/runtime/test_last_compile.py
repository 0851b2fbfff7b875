"""What torch notes of a compile is in its memory alone: it is read before a process that exits at once
takes it away."""

import json

import pytest

import samples
import support

pytestmark = pytest.mark.root_bpf

PROGRAM = """
import sys, torch

@torch.compile(backend="aot_eager", dynamic=False)
def step(x):
    return x.sin() + 1

print("ready", flush=True)
sys.stdin.readline()
step(torch.ones(3))
step(torch.ones(3, 3))
"""


def test_a_last_compile_has_its_reason(dynprof, venv_python, tmp_path):
    target = support.spawn([venv_python, "-c", PROGRAM], timeout=180)
    try:
        run = dynprof.start("-p", target.pid, "-o", tmp_path / "out")
        samples.wait_until_sampling(run)
        target.send("go")
        assert target.wait(timeout=120) == 0, target.text
        done = run.wait()
        assert done.rc == 0, done
    finally:
        target.kill()
    rows = json.loads((tmp_path / "out" / "compiles.json").read_text())["compiles"]
    assert [row["trace_id"] for row in rows] == ["0/0", "0/1"]
    assert "rank mismatch" in rows[1]["recompile_reason"], rows[1]
