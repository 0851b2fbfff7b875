"""The graph nodes found for C++ kernels, and so their lines, against what torch says with provenance tracking."""

import json
import subprocess

import pytest

import support


@pytest.fixture(scope="module")
def graphs(venv_python, tmp_path_factory):
    """[(plan of ours, {kernel: nodes} of torch's)]"""
    folder = tmp_path_factory.mktemp("provenance")
    program = support.REPO / "tests" / "programs" / "kernel_provenance.py"
    subprocess.run([venv_python, program, folder], check=True, timeout=300, cwd=folder)
    found = []
    for truth in sorted(folder.glob("*.json")):
        texts = [truth.with_suffix(".wrapper.py"), truth.with_suffix(".graph.txt")]
        plan = subprocess.run([support.BUILD / "tests" / "kernel_plan_dump", *texts], capture_output=True, check=True)
        found.append((json.loads(plan.stdout), json.loads(truth.read_text())))
    return found


def test_a_kernel_has_no_node_that_it_is_not_made_of(graphs):
    with_lines = 0
    for plan, truth in graphs:
        for kernel in plan["kernels"]:
            if kernel["language"] != "cpp":
                continue
            assert set(kernel["nodes"]) <= set(truth[kernel["name"]]), kernel
            with_lines += bool(kernel["lines"])
    assert len(graphs) == 4 and with_lines >= 10, with_lines


def test_a_library_call_has_the_node_of_its_operator(graphs):
    checked = 0
    for plan, _ in graphs:
        for kernel in plan["kernels"]:
            if kernel["language"] == "extern" and kernel["nodes"]:
                operator = kernel["name"].split(".")[1 if kernel["name"].startswith("extern") else 3]
                assert all(node.startswith(operator) for node in kernel["nodes"]), kernel
                checked += 1
    assert checked > 10
