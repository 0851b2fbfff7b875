"""The graph nodes found for C++ kernels, and so their lines and nn.Modules, against what torch says with provenance
tracking."""

import collections
import json
import subprocess

import pytest

import support
from generated_found import Found


@pytest.fixture(scope="module")
def graphs(require_root_bpf, either_python, tmp_path_factory):
    """[(plan of ours, torch's truth: see the program)]"""
    folder = tmp_path_factory.mktemp("provenance")
    program = support.REPO / "tests" / "programs" / "kernel_provenance.py"
    target = support.spawn([either_python, program, folder], timeout=300)
    try:
        captured = Found(target.pid)
    finally:
        target.kill()
    found = []
    for number, truth in enumerate(sorted(folder.glob("*.json"))):
        nodes = folder / f"{number}.captured.py"
        # torch made no code of this graph.
        nodes.write_text(captured.contents("fx_graph", f"{number // 2}/0")["captured_graph.py"])
        texts = [truth.with_suffix(".wrapper.py"), truth.with_suffix(".graph.txt"), nodes]
        plan = subprocess.run([support.BUILD / "tests" / "kernel_plan_dump", *texts], capture_output=True, check=True)
        found.append((json.loads(plan.stdout), json.loads(truth.read_text())))
    return found


def test_a_kernel_has_no_node_that_it_is_not_made_of(graphs):
    with_lines = 0
    for plan, truth in graphs:
        for kernel in plan["kernels"]:
            if kernel["language"] != "cpp":
                continue
            assert set(kernel["nodes"]) <= set(truth["nodes"][kernel["name"]]), kernel
            with_lines += bool(kernel["lines"])
    assert len(graphs) == 10 and with_lines >= 55, with_lines


def test_a_library_call_has_the_node_of_its_operator(graphs):
    checked = 0
    for plan, _ in graphs:
        for kernel in plan["kernels"]:
            if kernel["language"] == "extern" and kernel["nodes"]:
                operator = kernel["name"].split(".")[1 if kernel["name"].startswith("extern") else 3]
                assert all(node.startswith(operator) for node in kernel["nodes"]), kernel
                checked += 1
    assert checked > 10


def test_a_kernels_modules_are_those_of_its_nodes_or_contain_them(graphs):
    kernels = [(kernel, truth) for plan, truth in graphs for kernel in plan["kernels"]]
    assert all(truth["modules"] for _, truth in graphs) and len(kernels) > 50
    with_modules = collections.Counter()
    for kernel, truth in kernels:
        told = {truth["modules"][node] for node in kernel["nodes"] if node in truth["modules"]}
        for module in kernel["modules"]:
            assert any(one == module or one.startswith(module + ".") for one in told), (kernel, told)
        # Of a node outside of every module but the model itself there is none.
        with_modules[kernel["language"], bool(kernel["modules"]), bool(told)] += 1
    assert with_modules["cpp", True, True] >= 40 and with_modules["cpp", False, True] <= 3, with_modules
    assert with_modules["extern", True, True] >= 135 and with_modules["extern", False, True] <= 20, with_modules
    assert not with_modules["cpp", True, False] and not with_modules["extern", True, False]


def test_layers_that_run_the_same_lines_are_told_apart(graphs):
    """Each layer's products with weights, forward and backward: the innermost modules are in the lines only once."""
    found = {module for plan, _ in graphs for kernel in plan["kernels"] for module in kernel["modules"]}
    for layer in (0, 1):
        for name in ("query", "key", "value", "out", "norm"):
            assert f"L['self'].blocks.{layer}.{name}" in found
    for layer in (0, 1, 2):
        for name in ("attention", "attention.query", "attended.norm", "grow", "output.dropout"):
            assert f"L['self'].layers.{layer}.{name}" in found
