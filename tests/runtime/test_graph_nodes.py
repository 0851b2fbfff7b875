"""Graphs that torch made no code of, what their nodes hold beyond the code, and guards that only C++ has, against
torch's own print of them."""

import json
import re

import pytest

import support
from generated_found import Found

TITLE = "# On shapes, with their origin\n"
JOB = support.REPO / "tests" / "programs" / "graph_nodes_job.py"


@pytest.fixture(scope="module")
def job(venv_python, tmp_path_factory):
    folder = tmp_path_factory.mktemp("nodes")
    target = support.spawn([venv_python, JOB, folder / "truth.json"], timeout=180)
    target.truth = json.loads((folder / "truth.json").read_text())
    target.found = Found(target.pid)
    yield target
    target.kill()


def torchs_statements(code):
    """The lines of torch's code without the deletions behind them and its way to take a list of arguments."""
    lines = (re.sub(r";  (?:\w+ = )+None$", "", line.strip()) for line in code.splitlines())
    return [line for line in lines if line and not re.search(r"^def |args_iter|args_list", line)]


def our_statements(code):
    lines = []
    for line in code.splitlines()[1:]:
        line = re.sub(r"  # seq_nr \d+$", "", line.strip())
        if line and not line.startswith("#"):
            lines.append(re.sub(r'(\w): "[^"]*" = ', r"\1 = ", line))
    return lines


def test_captured_graphs_are_torchs(job):
    captured = {row["id"]: row for row in job.truth["graphs"] if row["id"]}
    assert len(captured) >= 6 and not captured["0/0"]["has_code"] and captured["4/0"]["has_code"]
    for trace_id, row in captured.items():
        files = job.found.contents("fx_graph", trace_id)
        name = "captured_graph_nodes.py" if row["has_code"] else "captured_graph.py"
        assert our_statements(files[name]) == torchs_statements(row["code"]), trace_id
        signature = re.search(r"def forward\(self, (.*)\):", row["code"])[1]
        inputs = re.search(r"def forward\(self, (.*)\):", files[name])[1]
        assert inputs.split(", ") == [part.split(" :")[0] for part in signature.split(", ")]


def test_all_graphs_are_found(job):
    assert job.found.missing == []


def nodes_of(code):
    """{node: (annotation, sequence number, file and line, module)} of one of our files."""
    nodes, place, module, new_module = {}, None, None, None
    for name, annotation in re.findall(r'(\w+): "([^"]*)"[,)]', code.splitlines()[0]):
        nodes[name] = annotation, None, None, None
    for line in map(str.strip, code.splitlines()[1:]):
        if line.startswith("# Module: "):
            new_module = line[len("# Module: "):]
        elif line.startswith(("# File: ", "# No stack trace")):
            place = line[len("# File: "):].split(" in ")[0] if line.startswith("# File") else None
            module, new_module = new_module, None
        elif found := re.match(r'(?:\w+ \S+= [^;]*;  )?(\w+)(?:: "([^"]*)")? = .*?(?:  # seq_nr (\d+))?$', line):
            nodes[found[1]] = found[2], found[3] and int(found[3]), place, module
    return nodes


def innermost(trace):
    frames = re.findall(r'File "([^"]*)", line (\d+), in', trace or "")
    return f"{frames[-1][0]}:{frames[-1][1]}" if frames else None


def test_nodes_have_shapes_lines_modules_and_sequence_numbers(job):
    """A file and torch's graph belong together where their statements are equal."""
    by_statements = {}
    for row in job.truth["graphs"]:
        by_statements.setdefault("\n".join(torchs_statements(row["code"])), row["nodes"])
    compared = {"shape": 0, "seq_nr": 0, "place": 0, "module": 0}
    files = [file for file in job.found.all("fx_graph") if file["origin"] == "GraphModule._graph"]
    directions = {file["direction"] for file in files}
    assert {"forward", "backward", "inference"} <= directions
    for file in files:
        told = by_statements["\n".join(our_statements(file["content"]))]
        ours = nodes_of(file["content"])
        for row in told:
            if row["op"] == "output" or row["name"] not in ours:
                assert row["op"] in ("output", "placeholder"), row
                continue
            annotation, sequence, place, module = ours[row["name"]]
            if row["shape"] is not None:
                sizes = f"[{', '.join(row['shape'])}][{', '.join(row['stride'])}]"
                assert annotation and annotation[annotation.index("["):] == sizes, row
                compared["shape"] += 1
            if row["op"] == "placeholder":
                continue
            assert sequence == row["seq_nr"], row
            assert place == innermost(row["trace"]), row
            assert module == row["module"], row
            compared["seq_nr"] += sequence is not None
            compared["place"] += place is not None
            compared["module"] += module is not None
    assert all(count >= 10 for count in compared.values()), compared


def test_a_backward_node_has_the_number_of_its_forward(job):
    graphs = {file["direction"]: nodes_of(file["content"]) for file in job.found.all("fx_graph", "0/0")
              if file["origin"] == "GraphModule._graph"}
    forward = {row[1] for row in graphs["forward"].values()} - {None}
    backward = {row[1] for row in graphs["backward"].values()} - {None}
    assert len(forward & backward) >= 5


def test_guards_on_shapes_are_torchs(job):
    with_guards = {trace_id: texts for trace_id, texts in job.truth["shape_guards"].items() if texts}
    assert len(with_guards) >= 2
    assert any("L['x'].size()[0] <= 3" in text for texts in with_guards.values() for text in texts)
    for trace_id, texts in job.truth["shape_guards"].items():
        guards, _, on_shapes = job.found.one("guards", trace_id)["content"].partition(TITLE)
        listed = {line.partition("  # ")[0] for line in guards.splitlines()}
        # torch 2.15 has them among the others as well, where each has the reason that is its alone.
        assert on_shapes.splitlines() == texts or {text.partition("  # ")[0] for text in texts} <= listed, trace_id
