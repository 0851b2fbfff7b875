"""The pages of generated code (generated/0_0/index.md) of a job with graph breaks: what they say, held against
the job itself and against depyf's own dump of the same job in a second process."""

import json
import marshal
import re
import subprocess

import pytest

import samples
import support
from graph_text import shapes, statements, statements_with_numbered_inputs

pytestmark = pytest.mark.root_bpf

JOB = support.REPO / "tests" / "programs" / "broken_job.py"
DUMP = """
import runpy, sys, depyf
with depyf.prepare_debug(sys.argv[2]):
    sys.argv = sys.argv[3:]
    sys.stdin = open("/dev/stdin")
    runpy.run_path(sys.argv[0], run_name="__main__")
"""


class Job:
    def __init__(self, folder, python, backend):
        self.folder = folder
        self.env = {
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"),
            "TMPDIR": str(folder),
            "TORCHINDUCTOR_VEC_ISA_OK": "1",
        }
        self.target = support.spawn([python, JOB, backend], timeout=300, env=self.env)
        dynprof = support.Dynprof(folder)
        try:
            run = samples.start_recording(
                dynprof, folder / "out", "-p", self.target.pid, "--decompiler", python,
                hertz=99)
            self.target.send("go")
            self.target.wait_for("^done", timeout=300)
            run.interrupt()
            self.done = run.wait(timeout=300)
        finally:
            dynprof.close()
        self.generated = folder / "out" / "generated"

    def page(self, trace_id):
        return (self.generated / trace_id.replace("/", "_") / "index.md").read_text()

    def one(self, trace_id, pattern):
        [path] = (self.generated / trace_id.replace("/", "_")).glob(pattern)
        return path


@pytest.fixture(scope="module", params=["eager", "aot_eager", "inductor"])
def job(request, require_root_bpf, venv_python, tmp_path_factory):
    made = Job(tmp_path_factory.mktemp("pages"), venv_python, request.param)
    made.backend = request.param
    yield made
    made.target.kill()


def test_the_recording_ends_well(job):
    assert job.done.rc == 0, job.done
    # depyf 0.20 fails at a SWAP of the second function, in its own dump as well.
    notes = [line for line in job.done.err.splitlines() if line.startswith("note: ")]
    assert len(notes) == 1 and re.match(r"note: 1 of \d+ code objects are shown as bytecode: depyf "
                                        r"cannot decompile it; ", notes[0]), job.done.err
    assert "Decompiled by" not in job.page("1/0").partition("## Resume function")[0]
    assert "RETURN_VALUE" in job.page("1/0").partition("## Resume function")[0]
    assert "a compile on one page: " in job.done.err
    assert {path.parent.name for path in job.generated.glob("*/index.md")} >= {"0_0", "1_0", "2_0"}


def test_graph_breaks_are_chained_in_order(job):
    chain = job.page("0/0").partition("## Order of execution")[2].partition("\n## ")[0]
    links = re.findall(r"compile (?:\[)?(\d+/\d+)", chain)
    assert links == ["0/0", "1/0", "2/0"], chain
    calls = re.findall(r"`(__compiled_fn_\d+|__resume_at_\d+_\d+)`", chain)
    kinds = [call.rpartition("_")[0] if "resume" in call else "graph" for call in calls]
    assert kinds[0] == "graph" and "__resume_at" in calls[1]
    assert "](../1_0/index.md)" in chain and "](../2_0/index.md)" in chain
    assert "Graph break: " in chain


def test_the_source_has_the_users_lines(job):
    source = job.page("0/0").partition("## Source")[2].partition("\n## ")[0]
    lines = JOB.read_text().splitlines()
    first = next(n for n, line in enumerate(lines, 1) if "def forward" in line)
    assert f"{first:>6}  {lines[first - 1]}" in source
    last = next(n for n, line in enumerate(lines, 1) if '"hidden": hidden}' in line)
    assert f"{last:>6}  {lines[last - 1]}" in source


def test_guards_are_readable(job):
    guards = job.page("0/0").partition("## Guards")[2].partition("\n## ")[0]
    assert "`L['x'] is a Tensor, torch.float32, requires_grad=False, size=[4, 8], stride=[8, 1]`" in guards
    assert "| `type(L['self']) is <class '__main__.Model'>` | `L['self']` |" in guards
    assert len(re.findall(r"(?m)^\| `", guards)) == int(re.search(r"(\d+) conditions", guards)[1])


def test_code_objects_load_in_the_targets_python(job):
    paths = list(job.generated.glob("*/*.pyc"))
    assert len(paths) >= 6
    for path in paths:
        code = marshal.loads(path.read_bytes()[16:])
        assert code.co_code and code.co_filename.endswith("broken_job.py"), path


def test_decompiled_code_computes_the_same(job):
    path = job.one("0/0", "bytecode_forward_decompiled.py")
    text = path.read_text()
    assert "__compiled_fn_" in text and "__resume_at_" in text
    assert text.strip() in job.page("0/0")
    job.target.lines.clear()
    job.target.send(str(path))
    assert job.target.wait_for("^(equal|differs)", timeout=120).group(1) == "equal", text


def normal(text):
    """Without what is different in every process: numbers of graphs, ids of objects, a line's comment."""
    text = re.sub(r"__compiled_fn_\d+_[0-9a-f_]+", "__compiled_fn", text)
    text = re.sub(r"__resume_at_(\d+)_\d+", r"__resume_at_\1", text)
    return re.sub(r"\b\d{6,}\b", "ID", text.partition("  # ")[0] if "\n" not in text else text).strip()


def body(path):
    """Behind the function's name, with temporaries numbered anew."""
    text = path.read_text()
    text = re.sub(r"(?m)^.*# this line helps Python .*\n\n?", "", text[text.index("("):])
    numbers = {}
    return normal(re.sub(r"__temp_(\d+)", lambda found: "__temp_" + str(
        numbers.setdefault(found[1], len(numbers))), text))


@pytest.fixture(scope="module")
def dump(job, venv_python):
    """What depyf dumps of the same job in a process of its own."""
    folder = job.folder / "depyf"
    done = subprocess.run([venv_python, "-c", DUMP, "x", folder, JOB, job.backend], input="go\n", text=True,
                          capture_output=True, timeout=300, env={**support.os.environ, **job.env})
    assert "done" in done.stdout, (done.stdout, done.stderr[-2000:])
    return folder


def test_functions_and_guards_are_those_of_depyf(job, dump):
    theirs = {body(path) for path in dump.glob("__transformed_code_*_for_*.py")}
    ours = {body(path) for path in job.generated.glob("*/bytecode_*_decompiled.py")}
    assert len(theirs) == 2 and ours == theirs
    said = {normal(line.partition("__guard_hit and ")[2])
            for path in dump.glob("full_code_for_*.py") for line in path.read_text().splitlines()}
    found = {normal(line) for path in job.generated.glob("*/guards.txt")
             for line in path.read_text().splitlines()}
    assert len(said) > 20 and said - {""} <= found, said - found


def graphs_of_depyf(dump):
    """[{kind: text}], by the number of the compiled function, which is the order of the compiles."""
    graphs = {}
    for path in dump.glob("__compiled_fn_*.py"):
        function, kind, _ = path.name.split(".", 2)
        kind = "Captured_graph" if kind.startswith("__compiled_fn_") else kind
        graphs.setdefault(int(function.rpartition("_")[2]), {})[kind] = path.read_text()
    return [graphs[number] for number in sorted(graphs)]


# Our files by backend and by what depyf calls the graph. aot_eager keeps no joint graph.
FILES = {
    "eager": {"Captured_graph": "captured_graph_nodes.py"},
    "aot_eager": {
        "Captured_graph": "captured_graph.py",
        "Forward_graph": "forward_graph_nodes.py",
        "Backward_graph": "backward_graph_nodes.py",
    },
    "inductor": {
        "Captured_graph": "captured_graph_nodes.py",
        "Joint_graph": "joint_graph.py",
        "Forward_graph": "forward_aot_graph.py",
        "Backward_graph": "backward_aot_graph.py",
    },
}


def test_graphs_are_those_of_depyf(job, dump):
    """The same nodes in the same order, with the same operators and arguments, and shapes where torch keeps them."""
    theirs = graphs_of_depyf(dump)
    assert len(theirs) == len(list(job.generated.glob("*/captured_graph.py"))) == 3
    for number, graphs in enumerate(theirs):
        folder = job.generated / f"{number}_0"
        for kind, name in FILES[job.backend].items():
            text, ours = graphs[kind], (folder / name).read_text()
            assert len(statements(text)) >= 3
            assert statements(ours) == statements(text), (number, kind)
            if kind != "Captured_graph":  # its shapes are in C++ objects, which are not read
                assert len(shapes(text)) >= 3 and shapes(ours) == shapes(text), (number, kind)
        # The code that torch made of the graph has other names for the inputs.
        code = (folder / "captured_graph.py").read_text()
        assert statements_with_numbered_inputs(code) == statements_with_numbered_inputs(graphs["Captured_graph"])
        if job.backend == "inductor":
            assert (folder / "forward_wrapper.py").read_text() == graphs["kernel_0"]


GRAPH = """
class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[4, 8]", L_y_: "f32[8]"):
        l_x_ = L_x_
        # File: a.py:1 in f, code: relu(x) * y
        relu: "f32[4, 8]" = torch.relu(l_x_);  l_x_ = None
        mul: "f32[4, 8]" = relu * L_y_;  relu = L_y_ = None
        return (mul,)
"""


@pytest.mark.parametrize("old, new, equal", [
    ("[4, 8]", "[4, 8][8, 1]cpu", True),
    ("  # File: a.py:1", "  # File: b.py:2", True),
    (";  l_x_ = None", "", True),
    ("relu * L_y_", "relu + L_y_", False),
    ("relu * L_y_", "L_y_ * relu", False),
    ("torch.relu(l_x_)", "torch.relu(l_x_, inplace = True)", False),
    ("torch.relu(l_x_)", "torch.relu(L_y_)", False),
    ("(mul,)", "(mul, relu)", False),
    ("(mul,)", "mul", False),
    ("return", "other = torch.relu(mul)\n        return", False),
    ('L_x_: "f32[4, 8]", L_y_: "f32[8]"', 'L_y_: "f32[8]", L_x_: "f32[4, 8]"', False),
])
def test_a_difference_of_graphs_is_noticed(old, new, equal):
    changed = GRAPH.replace(old, new)
    assert changed != GRAPH
    for form in (statements, statements_with_numbered_inputs):
        assert (form(changed) == form(GRAPH)) == equal
    assert shapes(GRAPH.replace("[4, 8]", "[4, 9]")) != shapes(GRAPH) == shapes(GRAPH.replace("[8]", "[8][1]cpu"))


def test_kernels_have_a_plan(job):
    if job.backend != "inductor":
        assert not list(job.generated.glob("*/*_plan.json"))
        return
    plan = json.loads(job.one("0/0", "*_wrapper_plan.json").read_text())
    wrapper = job.one("0/0", "*_wrapper.py").read_text()
    assert plan["benchmark"]
    kernels = {kernel["name"]: kernel for kernel in plan["kernels"]}
    for name in re.findall(r"(?m)^(\w+) = async_compile\.", wrapper):
        assert kernels[name]["launches"] == len(re.findall(rf"(?m)^ +{name}\(", wrapper))
    libraries = [k for k in plan["kernels"] if k["language"] == "extern"]
    assert libraries and libraries[0]["operators"], plan
    assert any(line.startswith(f"{JOB}:") or "broken_job.py:" in line
               for kernel in libraries for line in kernel["lines"]), plan


def test_a_wrapper_is_a_benchmark(job, venv_python):
    if job.backend != "inductor":
        pytest.skip("only Inductor makes kernels")
    path = job.one("0/0", "*_wrapper.py")
    assert f"`python3 {path.name}`" in job.page("0/0")
    done = subprocess.run([venv_python, path], capture_output=True, text=True, timeout=300,
                          env={**support.os.environ, **job.env})
    assert done.returncode == 0 and re.search(r"\d\.\d+", done.stdout + done.stderr), done


def test_a_kernel_of_a_wrapper_is_timed(job, venv_python):
    """The commands of the page; the bytes are those of the arguments that the wrapper itself gives the kernel."""
    if job.backend != "inductor":
        pytest.skip("only Inductor makes kernels")
    wrapper = job.one("0/0", "*_wrapper.py")
    commands = re.findall(r"^python3 (benchmark_kernel\.py \S+ \w+)$", job.page("0/0"), re.MULTILINE)
    assert commands
    for command in commands:
        program, *arguments = command.split()
        assert wrapper.with_name(arguments[0]).exists()
        done = subprocess.run([venv_python, program, *arguments], capture_output=True, text=True, timeout=300,
                              cwd=wrapper.parent, env={**support.os.environ, **job.env})
        told = re.fullmatch(rf"{arguments[1]}: (\d+\.\d+)ms    (\d+\.\d+)GB    (\d+\.\d+)GB/s\n", done.stdout)
        assert told and float(told[1]) > 0, done
    done = subprocess.run([venv_python, "benchmark_kernel.py", wrapper.name, "no_such_kernel"], capture_output=True,
                          text=True, timeout=300, cwd=wrapper.parent, env={**support.os.environ, **job.env})
    assert done.returncode == 1 and done.stderr.startswith(f"error: {wrapper.name} has no kernel no_such_kernel"), done


HOSTILE = """
import dis, importlib.util, marshal, sys
code = (lambda x: {"a": x, "b": x}).__code__
raw = bytearray(code.co_code)
keys = next(i for i in dis.get_instructions(code) if i.opname == "LOAD_CONST")
raw[keys.offset:keys.offset + 2] = dis.opmap["LOAD_NAME"], 0
code = code.replace(co_code=bytes(raw), co_names=(f"__import__('os').mkdir({sys.argv[1]!r})",))
sys.stdout.buffer.write(importlib.util.MAGIC_NUMBER + bytes(12) + marshal.dumps(code))
"""


def decompiler_program():
    source = (support.REPO / "symbolizer" / "export" / "decompiler.cpp").read_text()
    return re.search(r'R"py\((.*)\)py"', source, re.DOTALL)[1]


def test_depyf_evaluates_nothing_of_the_target(venv_python, tmp_path):
    """A code object whose name is an expression, where depyf evaluates what it made of the bytecode."""
    made = tmp_path / "made"
    code = subprocess.run([venv_python, "-c", HOSTILE, made], capture_output=True, check=True).stdout
    program = decompiler_program()
    for ours in (True, False):
        if not ours:  # as depyf is: the test is of something
            program = re.sub(r"(?m)^depyf\.(eval|Decompiler).*$", "", program)
        done = subprocess.run([venv_python, "-I", "-B", "-c", program], input=code, capture_output=True)
        assert done.returncode == 5, done
        assert made.exists() != ours


def test_the_decompiler_tells_what_is_wrong_with_a_file(job, venv_python):
    """The status of each of the reasons, with the real program, Python and depyf."""
    file = job.one("0/0", "bytecode_forward.pyc").read_bytes()
    other_version = (3394).to_bytes(2, "little") + file[2:]  # CPython 3.7
    for given, isolated, status in (
        (file, "-I", 0),
        (other_version, "-I", 4),
        (file[:len(file) // 2], "-I", 5),
        (file[:16] + b"c" + bytes(100), "-I", 5),
        (file, "-IS", 3),  # without the packages of the environment
    ):
        done = subprocess.run([venv_python, isolated, "-B", "-c", decompiler_program()], input=given,
                              capture_output=True, timeout=60)
        assert done.returncode == status, (given[:20], done)
        assert (b"def " in done.stdout) == (status == 0)


@pytest.mark.parametrize("script, why", [
    ("exit 3", "has no depyf"),
    ("kill -SEGV $$", "was ended by signal 11"),
    ("exit 4", "is of another version"),
    ("sleep 1000", "took too long"),
])
def test_without_a_decompiler_the_listing_is_shown(
        require_root_bpf, venv_python, tmp_path_factory, tmp_path, script, why):
    fake = tmp_path / "python"
    fake.write_text(f"#!/bin/sh\n{script}\n")
    fake.chmod(0o755)
    base = tmp_path_factory.getbasetemp()
    for parent in (tmp_path, base, base.parent):  # pytest's own, for root alone; it runs as another user
        if parent == base or parent == tmp_path or "pytest" in parent.name:
            parent.chmod(0o755)
    target = support.spawn([venv_python, JOB, "eager"], timeout=180)
    dynprof = support.Dynprof(tmp_path)
    try:
        run = samples.start_recording(dynprof, tmp_path / "out", "-p", target.pid,
                                      "--decompiler", fake, hertz=99)
        target.send("go")
        target.wait_for("^done", timeout=180)
        run.interrupt()
        done = run.wait(timeout=120)
    finally:
        dynprof.close()
        target.kill()
    assert done.rc == 0, done
    notes = [line for line in done.err.splitlines() if "shown as bytecode" in line]
    assert len(notes) == 1 and why in notes[0], done.err
    page = (tmp_path / "out" / "generated" / "0_0" / "index.md").read_text()
    assert "RETURN_VALUE" in page and "Decompiled by" not in page
