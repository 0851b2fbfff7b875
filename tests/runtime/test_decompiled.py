"""Decompiled functions, called in the job in place of the compiled ones, compute what the user's functions do."""

import re

import pytest

import samples
import support

pytestmark = pytest.mark.root_bpf

JOB = support.REPO / "tests" / "programs" / "breaking_functions.py"
DECOMPILED = {"logs_a_loss", "clips", "keeps_a_list", "formats"}
LISTED = {"branches_on_data"}  # depyf 0.20 fails at a SWAP of it


@pytest.fixture(scope="module")
def job(require_root_bpf, venv_python, tmp_path_factory):
    folder = tmp_path_factory.mktemp("decompiled")
    target = support.spawn([venv_python, JOB], timeout=180)
    dynprof = support.Dynprof(folder)
    try:
        run = samples.start_recording(dynprof, folder / "out", "-p", target.pid, "--decompiler",
                                      venv_python, hertz=99)
        target.send("go")
        target.wait_for("^done", timeout=180)
        run.interrupt()
        done = run.wait(timeout=180)
        assert done.rc == 0, done
    finally:
        dynprof.close()
    target.generated = folder / "out" / "generated"
    yield target
    target.kill()


def result_of(job, path):
    job.lines.clear()
    job.send(str(path))
    return job.wait_for("^(equal|differs)$", timeout=60).group(1)


def test_which_functions_are_decompiled(job):
    made = {path.stem.removeprefix("bytecode_") for path in job.generated.glob("*/bytecode_*.txt")}
    assert made >= DECOMPILED | LISTED
    for name in LISTED:
        [listing] = job.generated.glob(f"*/bytecode_{name}.txt")
        assert not list(listing.parent.glob("bytecode_*_decompiled.py"))
        assert "SWAP" in (listing.parent / "index.md").read_text()


@pytest.mark.parametrize("name", sorted(DECOMPILED))
def test_it_computes_the_same(job, name, tmp_path):
    [path] = job.generated.glob(f"*/bytecode_{name}_decompiled.py")
    text = path.read_text()
    assert len(re.findall(r"__resume_at_\d+_\d+", text)) == 1
    assert result_of(job, path) == "equal", text
    changed, count = re.subn(r"(__compiled_fn_\d+_\w+)\(x\b", r"\1(x + 1", text)
    assert count == 1
    other = tmp_path / path.name
    other.write_text(changed)
    assert result_of(job, other) == "differs", changed
