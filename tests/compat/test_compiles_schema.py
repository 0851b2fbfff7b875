"""compiles.json against docs/reference/compiles.schema.json. Real recordings are checked too: test_outputs.py and
test_gpu_recording.py in tests/runtime."""

import copy
import json
import subprocess

import pytest

import json_schema
import support


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    folder = tmp_path_factory.mktemp("schema") / "out"
    folder.mkdir()
    subprocess.run([support.BUILD / "tests" / "fake_export", folder], check=True, timeout=120)
    return json.loads((folder / "compiles.json").read_text())


def test_document_has_the_documented_shape(document):
    assert document["compiles"]
    assert json_schema.compiles_problems(document) == []


@pytest.mark.parametrize("change, problem", [
    (lambda d: d.pop("edges"), "$: edges is missing"),
    (lambda d: d.update(version=2), "$.version: 2 is not 1"),
    (lambda d: d.update(surprise=1), "$: surprise is not in the schema"),
    (lambda d: d["lost"].update(ring_full=-1), "$.lost.ring_full: -1 is less than 0"),
    (lambda d: d["compiles"][0].pop("wall_s"), "$.compiles[0]: wall_s is missing"),
    (lambda d: d["compiles"][0].update(exact=1), "$.compiles[0].exact: 1 is not of type boolean"),
    (lambda d: d["compiles"][0].update(samples=True), "$.compiles[0].samples: True is not of type integer"),
    (lambda d: d["compiles"][0].update(trace_id="0-0"), "$.compiles[0].trace_id: '0-0' does not match"),
    (lambda d: d["compiles"][0]["phases"][0].update(name="linking"),
     "$.compiles[0].phases[0].name: 'linking' is not one of"),
    (lambda d: d["compiles"][0].update(children=[{}]), "$.compiles[0].children[0]: pid is missing"),
])
def test_differences_are_noticed(document, change, problem):
    changed = copy.deepcopy(document)
    change(changed)
    found = json_schema.compiles_problems(changed)
    assert found and found[0].startswith(problem)


def test_keywords_that_the_validator_lacks_are_refused():
    with pytest.raises(ValueError, match="oneOf"):
        list(json_schema.problems(1, {"oneOf": []}))
