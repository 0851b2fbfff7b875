"""The nn.Modules a compile spends its time on, against what torch's own graph says of them."""

import json

import pytest

import samples
import support
from matrix_run import FEW_COMPILER_RUNS

pytestmark = pytest.mark.root_bpf

JOB = support.REPO / "tests" / "programs" / "module_job.py"
PLACES = ("tracing_s", "retracing_s", "lowering_s")


@pytest.fixture(scope="module")
def recorded(require_root_bpf, venv_python, tmp_path_factory):
    folder = tmp_path_factory.mktemp("modules")
    truth = folder / "truth.json"
    environment = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"), "TMPDIR": str(folder), **FEW_COMPILER_RUNS}
    target = support.spawn([venv_python, JOB, truth], timeout=180, env=environment)
    dynprof = support.Dynprof(folder)
    try:
        run = samples.start_recording(
            dynprof, folder / "out", "-p", target.pid, hertz=99
        )
        target.send("go")
        assert target.wait(timeout=600) == 0, target.text
        done = run.wait(timeout=300)
        assert done.rc == 0, done
        ledger = json.loads((folder / "out" / "compiles.json").read_text())
        report = (folder / "out" / "report.txt").read_text()
        yield json.loads(truth.read_text()), ledger["compiles"], report
    finally:
        dynprof.close()
        target.kill()


def times(rows):
    sums = {}
    for row in rows:
        for module in row["modules"]:
            known = sums.setdefault(module["path"], dict.fromkeys(PLACES, 0.0))
            for place in PLACES:
                known[place] += module[place]
    return sums


def test_paths_are_those_of_torchs_graph(recorded):
    truth, rows, _ = recorded
    wanted = {source.replace("L['self']", "Net") for source in truth["paths"]}
    assert {"Net.branches.0.heavy", "Net.branches.0.light"} <= wanted
    # A call of a module that has no operator of its own is also traced.
    wanted |= {path.rsplit(".", 1)[0] for path in wanted} | {"Net", "Net.branches"}
    found = times(rows)
    assert found and set(found) <= wanted, (found, wanted)


def test_the_module_with_the_operators_has_the_time(recorded):
    truth, rows, report = recorded
    found = times(rows)
    heavy = found["Net.branches.0.heavy"]
    assert truth["paths"]["L['self'].branches.0.heavy"] >= 600
    for place in PLACES:
        others = sum(row[place] for path, row in found.items() if path != "Net.branches.0.heavy")
        assert heavy[place] > 3 * others and heavy[place] > 0, (place, found)
    for row in rows:
        spent = sum(module[place] for module in row["modules"] for place in PLACES)
        assert spent <= 1.1 * row["wall_s"] + 0.1, row["trace_id"]
    shown = [line for line in report.splitlines() if line.endswith("  Net.branches.0.heavy")]
    assert len(shown) == 1
    assert float(shown[0].split()[1]) == pytest.approx(sum(heavy.values()), abs=0.01)


def test_a_backward_has_the_modules_of_its_forward(recorded):
    _, rows, _ = recorded
    backward = [row for row in rows if row["kind"] == "backward"]
    assert len(backward) == 1
    assert any(
        module["path"] == "Net.branches.0.heavy" and module["lowering_s"] > 0
        for module in backward[0]["modules"]
    ), backward[0]["modules"]
