"""What user/generated finds in real processes, printed by tests/tools/generated_dump.cpp and held
against what the process itself, or torch in it, says was generated."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest

import support
from generated_found import Found, assert_same_instructions

pytestmark = pytest.mark.pythons(last="3.15")

PROGRAMS = support.REPO / "tests" / "programs"
LOOKALIKE = PROGRAMS / "generated_lookalike.py"
JOB = PROGRAMS / "generated_job.py"
# Of the look-alike's graph_of().
GRAPH = """\
def forward(self, x: "'d'[2, {0}][{0}, 1]"):

    # Module: L['self'].layer
    # File: b.py:{0} in f, code: x + 1
    add = x + {0}  # seq_nr {0}
    add -= -1.5;  sub = add  # seq_nr {0}

    # No stack trace
    part = sub[(slice(None, 2, None), Ellipsis, None)]
    call = __main__.branches([part, (part,)], True, d = {{'k': 'it\\'s'}})
    view = call.view(1000000, dim = 0.1)
    layer = self.layers.0(view)
    return (layer,)
"""


# ---- every CPython, with look-alikes of torch's objects -------------------------------------------


def stand(spawn, interpreter, folder, *more):
    target = spawn([interpreter.path, LOOKALIKE, folder, *more])
    return target, json.loads(target.wait_for("^ready (.*)").group(1))


def test_finds_what_each_compile_made(interpreter, spawn, tmp_path):
    target, compiles = stand(spawn, interpreter, tmp_path)
    found = Found(target.pid)
    assert found.missing == []
    for number, truth in enumerate(compiles):
        trace_id = truth["id"]
        bytecode = found.one("bytecode", trace_id)["content"]
        assert_same_instructions(bytecode, truth["instructions"])
        assert f"# calls __compiled_fn_{number}_0123: a compiled graph" in bytecode
        assert f"# calls __resume_at_138_{number}: " in bytecode
        guards = found.one("guards", trace_id)["content"].splitlines()
        reason = f"line of {number}  # user.py:{number} in f"
        assert guards[1:] == [f"L['x'] == {number}  # {reason}", "___check()"]
        for direction in ("forward", "backward"):
            wrapper = found.one("wrapper", trace_id, direction)
            path = tmp_path / f"c{number}{direction}.py"
            assert wrapper["content"] == path.read_text()
            assert wrapper["origin"] == str(path)
            assert wrapper["problem"] == ""
        graphs = found.contents("fx_graph", trace_id)
        assert graphs == {
            "captured_graph.py": f"def forward(self, x{number}): return x{number}",
            "captured_graph_nodes.py": GRAPH.format(number),
            "joint_graph.py": "the joint graph",
            "forward_post_grad_graph.py": f"post grad of c{number}forward",
            "backward_post_grad_graph.py": f"post grad of c{number}backward",
        }
        resume = found.one("resume_function", trace_id)
        name = f"torch_dynamo_resume_in_{truth['name']}_at_7"
        assert resume["name"] == f"{name}.txt"
        assert f"# called as __resume_at_138_{number} by compile {trace_id}" in resume["content"]
    # Equal text is no link.
    assert {f["origin"] for f in found.all(trace_id="")} == {
        f"<eval_with_key>.{n}0" for n in range(len(compiles))
    }
    assert target.alive()


def test_code_objects_are_those_of_the_process(interpreter, spawn, tmp_path):
    """Its own interpreter loads each .pyc, and finds the code equal to the one it was read from."""
    target, compiles = stand(spawn, interpreter, tmp_path)
    found = Found(target.pid)
    checked = 0
    for truth in compiles:
        files = found.all("code_object", truth["id"])
        kinds = {file["name"].partition("_")[0] for file in files}
        assert kinds == {"bytecode", "original", "torch"}, [file["name"] for file in files]
        for file in files:
            assert file["problem"] == ""
            path = tmp_path / f"{checked}.pyc"
            path.write_bytes(bytes.fromhex(file["content"]))
            target.send(f"check({str(path)!r})")
            assert target.wait_for("^(same|differs.*)").group(1) == "same", file["name"]
            target.lines.clear()
            checked += 1
    assert checked >= 3 * len(compiles)


def test_the_users_source(interpreter, spawn, tmp_path):
    target, compiles = stand(spawn, interpreter, tmp_path)
    found = Found(target.pid)
    source = found.one("source", compiles[0]["id"])
    lines = LOOKALIKE.read_text().splitlines()
    first = lines.index('def branches(a, b=3, *rest, key="x", **more):')
    assert source["content"].splitlines()[0] == lines[first]
    assert source["origin"] == f"{LOOKALIKE}:{first + 1}"
    assert source["content"].splitlines()[-1].lstrip().startswith("return {")


def test_guards_without_a_finalizer_are_found_by_the_collector_alone(interpreter, spawn, tmp_path):
    target, _ = stand(spawn, interpreter, tmp_path)
    ids = {f["trace_id"] for f in Found(target.pid, "--gc", 0).all("guards")}
    assert ids == {"1/0", "3/0"}
    target.send("gc.collect(); gc.freeze()")
    target.wait_for("^ok")
    found = Found(target.pid)
    ids = {f["trace_id"] for f in found.all("guards")}
    assert ids == {"0/0", "1/0", "2/0", "3/0", "4/0"}, found.missing


def test_forged_objects_are_rejected(interpreter, spawn, tmp_path):
    target, compiles = stand(spawn, interpreter, tmp_path, "forged")
    found = Found(target.pid)
    assert target.alive()
    # What is true is still found, and nothing forged has an id.
    for truth in compiles:
        assert_same_instructions(
            found.one("bytecode", truth["id"])["content"], truth["instructions"]
        )
    assert {f["trace_id"] for f in found.files} == {"", *(c["id"] for c in compiles)}
    assert any("too many objects" in sentence for sentence in found.missing)
    graphs = found.contents("fx_graph", "")
    assert {"code of 7/7", "code of 8/8"} <= set(graphs.values())
    [long] = [f for f in found.all("fx_graph", "") if f["origin"] == "GraphModule._graph"]
    assert long["truncated"] and long["size"] <= 4 << 20 and "\x1b" not in long["content"]
    assert "    n100 = " in long["content"] and "    n4000 = " not in long["content"]
    big = [f for f in found.files if f["truncated"] and f is not long]
    assert [(f["origin"], f["size"]) for f in big] == [("<eval_with_key>.big", 4 << 20)]
    assert "is not an absolute path" in " ".join(f["problem"] for f in found.files)
    assert not any("root:" in f["content"] for f in found.files)
    # Constants that contain themselves, or that no file can hold, are texts; forged sizes leave no file.
    [cyclic] = [f for f in found.all("code_object") if "cyclic" in f["name"] and f["problem"]]
    assert cyclic["problem"].startswith("3 of its constants")
    assert b"__co_consts[" in bytes.fromhex(cyclic["content"])
    names = {f["name"] for f in found.files}
    assert {"bytecode_cyclic.pyc", "bytecode_forged_size.txt", "original_forged_size.pyc"} <= names
    assert "bytecode_forged_size.pyc" not in names
    # Names with path separators and escapes.
    assert "bytecode_.._.._etc___0_x_cron.d_evil.pyc" in names
    assert [name for name in names if not re.fullmatch(r"[\w.+=,@!-]{1,104}", name, re.ASCII)] == []


def test_a_target_that_changes_all_the_while(interpreter, spawn, tmp_path):
    target, _ = stand(spawn, interpreter, tmp_path)
    target.send("threading.Thread(target=churn, args=(sys.argv[1],), daemon=True).start()")
    target.wait_for("^ok")
    linked = reads = 0
    while reads < 8 or (linked == 0 and reads < 300):
        reads += 1
        found = Found(target.pid)
        for file in found.all():
            number = file["trace_id"].partition("/")[0]
            if file["kind"] == "wrapper" and number:
                assert file["content"] in (
                    f"# AOT ID: ['{number}_{file['direction']}']\nprint({number})\n",
                    "",
                )
            if file["name"] == "captured_graph.py" and number:
                assert file["content"] == f"def forward(self, x{number}): return x{number}"
                linked += 1
    assert target.alive()
    assert linked > 0


def test_a_target_that_collects_garbage_all_the_while(interpreter, spawn, tmp_path):
    """Rings of the collector that change while they are walked must not be walked for ever."""
    target, compiles = stand(spawn, interpreter, tmp_path)
    target.send("threading.Thread(target=collect, daemon=True).start()")
    target.wait_for("^ok")
    ids = {truth["id"] for truth in compiles}
    whole = 0
    for _ in range(30):
        found = Found(target.pid)
        guards = {file["trace_id"] for file in found.all("guards")}
        assert guards <= ids
        assert guards == ids or found.missing, "what is left out is said"
        whole += guards == ids
    assert target.alive()
    assert whole > 0


def test_reads_files_where_the_target_sees_them(interpreters, spawn, tmp_path):
    """A mount namespace of its own, as in a container: here the folder is empty."""
    if os.geteuid() != 0:
        pytest.skip("needs root to mount")
    run = f"{interpreters[-1].path} {LOOKALIKE} {tmp_path}"
    command = f"mount -t tmpfs none {tmp_path} && exec {run}"
    target = spawn(["unshare", "--mount", "sh", "-c", command])
    found = Found(target.pid)
    wrappers = found.all("wrapper")
    assert len(wrappers) == 10 and not list(tmp_path.iterdir())
    for wrapper in wrappers:
        assert wrapper["content"] and wrapper["problem"] == ""


def test_stays_within_limits(interpreters, spawn, tmp_path):
    target, _ = stand(spawn, interpreters[-1], tmp_path)
    assert Found(target.pid).missing == []
    few = Found(target.pid, "--files", 7)
    assert len(few.files) == 7
    assert few.missing == ["files beyond 7 of them, or 64 MB in all"]
    short = Found(target.pid, "--bytes", 20)
    assert all(f["size"] <= 20 for f in short.files)
    assert any(f["truncated"] for f in short.files)
    total = Found(target.pid, "--total", 3000)
    assert sum(f["size"] for f in total.files) <= 3000


def test_without_torch_there_is_nothing(interpreters, spawn):
    target = spawn([interpreters[-1].path, "-c", "print('ready', flush=True); input()"])
    found = Found(target.pid)
    assert (found.files, found.missing) == ([], [])


# ---- torch -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def job(venv_python, tmp_path_factory):
    """One process for all tests of torch: three backends, each with a graph break, a backward and a
    recompile."""
    folder = tmp_path_factory.mktemp("generated")
    target = support.spawn(
        [venv_python, JOB, folder / "truth.json"],
        timeout=180,
        env={
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"),
            "TMPDIR": str(folder),
            # Probing the CPU with the C++ compiler takes longer than the rest.
            "TORCHINDUCTOR_VEC_ISA_OK": "1",
        },
    )
    target.truth = json.loads((folder / "truth.json").read_text())
    target.folder = folder
    target.found = Found(target.pid)
    yield target
    target.kill()


def ids(job):
    return {entry["id"] for entry in job.truth["entries"]}


def test_every_compile_has_its_bytecode(job):
    frames = "0/0 1/0 2/0 2/1 3/0 4/0 5/0 5/1 6/0 7/0 8/0 8/1"
    assert ids(job) == set(frames.split())
    for entry in job.truth["entries"]:
        file = job.found.one("bytecode", entry["id"])
        assert_same_instructions(file["content"], entry["instructions"])
        for name in entry["names"]:
            if name.startswith(("__compiled_fn_", "__resume_at_")):
                assert f"# calls {name}: " in file["content"]
        assert f"({JOB}:{entry['line']})" in file["content"].splitlines()[0]


def test_every_compile_has_its_guards(job):
    explained = 0
    for entry in job.truth["entries"]:
        lines = job.found.one("guards", entry["id"])["content"].splitlines()[1:]
        reasons = [tuple(pair) for pair in entry["reasons"]]
        for line, guard in zip(lines, entry["guards"], strict=False):
            assert line.startswith(guard)
            reason = line.removeprefix(guard).removeprefix("  # ")
            if reason:
                assert (guard, reason) in reasons
                explained += 1
        assert len(lines) >= len(entry["guards"])
    assert explained > 100


def test_wrappers_are_the_files_inductor_loaded(job):
    """Which compile loaded a wrapper, torch's own CompileContext said at the time."""
    loaded = {(trace_id, path) for trace_id, path in job.truth["loaded"]}
    assert {(w["trace_id"], w["origin"]) for w in job.found.all("wrapper")} == loaded
    for wrapper in job.found.all("wrapper"):
        content = Path(wrapper["origin"]).read_text()
        assert wrapper["content"] == content
        assert wrapper["problem"] == "" and not wrapper["truncated"]
        assert content.splitlines()[0].endswith(f"_{wrapper['direction']}']")
    directions = {(w["trace_id"], w["direction"]) for w in job.found.all("wrapper")}
    assert directions == {
        ("0/0", "forward"),
        ("0/0", "backward"),
        ("1/0", "forward"),
        ("1/0", "backward"),
        ("2/0", "inference"),
        ("2/1", "inference"),
    }


def test_kernels_are_those_of_the_wrappers(job):
    for wrapper in job.found.all("wrapper"):
        kernels = job.found.all("kernel_source", wrapper["trace_id"], wrapper["direction"])
        for kernel in kernels:
            assert kernel["content"] == Path(kernel["origin"]).read_text()
            name = Path(kernel["name"]).stem.removeprefix(wrapper["direction"] + "_")
            assert f"{name} = async_compile.cpp_pybinding(" in wrapper["content"]
        launched = wrapper["content"].count("async_compile.cpp_pybinding(")
        assert len(kernels) == launched > 0
    assert not job.found.all("kernel_source", "")


def test_graphs_belong_to_the_compile_that_made_their_code(job):
    linked = [f for f in job.found.all("fx_graph") if f["origin"].startswith("<eval_with_key>")]
    for file in linked:
        assert file["content"] == job.truth["texts"][file["origin"]]
        if file["trace_id"]:
            # Some code is made at the first run, outside of any compile.
            assert job.truth["sources"][file["origin"]] in (file["trace_id"], "")
    assert {f["origin"] for f in linked} == set(job.truth["texts"])


def test_graphs_of_each_backend(job):
    names = {trace_id: set(job.found.contents("fx_graph", trace_id)) for trace_id in ids(job)}
    for inductor in ("0/0", "1/0"):
        graphs = {"captured_graph.py", "forward_post_grad_graph.py", "backward_post_grad_graph.py"}
        assert graphs <= names[inductor]
    assert {"captured_graph.py", "inference_post_grad_graph.py"} <= names["2/1"]
    post_grad = job.found.contents("fx_graph", "2/1")["inference_post_grad_graph.py"]
    assert 'arg0_1: "f32[3][1]cpu"' in post_grad  # with shapes
    for aot in ("3/0", "4/0"):
        assert {"forward_graph.py", "backward_graph.py"} <= names[aot]
    assert names["5/1"] == {"captured_graph.py", "inference_graph.py", "inference_graph_nodes.py"}
    for eager in ("6/0", "7/0", "8/0", "8/1"):
        assert names[eager] == {"captured_graph.py", "captured_graph_nodes.py"}
    assert "linear" in job.found.contents("fx_graph", "6/0")["captured_graph.py"]
    assert job.found.missing == []


def test_resume_functions_say_what_they_resume(job):
    for breaks, resumed in (("0/0", "1/0"), ("3/0", "4/0"), ("6/0", "7/0")):
        file = job.found.one("resume_function", breaks)
        lines = file["content"].splitlines()
        assert lines[0].startswith("# Block.torch_dynamo_resume_in_forward_at_")
        assert " continues Block.forward (" in lines[0]
        assert f"by compile {breaks}" in lines[1]
        assert f"# was compiled as compile {resumed}" in lines


def test_leaves_the_target_alone(job):
    status = Path(f"/proc/{job.pid}/status").read_text()
    Found(job.pid)
    assert "TracerPid:\t0" in status and job.alive()


def replaced(job, trace_id, direction):
    """The wrapper as found now, and what it was when the file was still there."""
    before = job.found.one("wrapper", trace_id, direction)
    return before, Path(before["origin"])


def test_files_that_are_not_what_they_were(job, tmp_path):
    """Torch's copy in memory stands in for a wrapper's file; a kernel has none."""
    forward, forward_path = replaced(job, "0/0", "forward")
    backward, backward_path = replaced(job, "0/0", "backward")
    other, other_path = replaced(job, "2/0", "inference")
    changed, changed_path = replaced(job, "2/1", "inference")
    kernels = {Path(f["origin"]) for f in job.found.all("kernel_source")}
    kernel, sparse, gone, theirs, folder = sorted(kernels)[:5]
    saved = tmp_path / "saved"
    shutil.copytree(job.folder / "cache", saved, symlinks=True)
    try:
        for path in (forward_path, kernel):
            path.unlink()
            path.symlink_to("/etc/shadow")
        backward_path.unlink()
        gone.unlink()
        for path in (other_path, sparse):
            path.write_text("")
            os.truncate(path, 1 << 30)
        changed_path.write_text("# AOT ID: ['9_forward']\nprint('changed')\n")
        theirs.write_text("somebody else's")
        os.chown(theirs, 65534, 65534)
        folder.unlink()
        folder.mkdir()
        found = Found(job.pid)
    finally:
        shutil.rmtree(job.folder / "cache")
        shutil.copytree(saved, job.folder / "cache", symlinks=True)
    for before, problem in (
        (forward, "is a symbolic link"),
        (backward, "No such file or directory"),
        (other, "is 1073741824 bytes long"),
        (changed, "has changed"),
    ):
        now = found.one("wrapper", before["trace_id"], before["direction"])
        assert problem in now["problem"], now["problem"]
        assert now["content"] == before["content"]
    problems = {Path(f["origin"]): f for f in found.all("kernel_source") if f["problem"]}
    for path, problem in (
        (kernel, "is a symbolic link"),
        (sparse, "is 1073741824 bytes long"),
        (gone, "No such file or directory"),
        (theirs, "belongs to uid 65534"),
        (folder, "is not a regular file"),
    ):
        assert problem in problems.pop(path)["problem"]
    assert not problems
    assert all(f["content"] == "" for f in found.all("kernel_source") if f["problem"])
    assert not any("root:" in f["content"] for f in found.files)


def test_hostile_names(job):
    plant = (
        "loader = graph_module._loader;"
        "loader.eval_cache['<eval_with_key>.7/../../../../tmp/evil'] = 'one';"
        "loader.eval_cache['\\x1b[2J\\n<x>\\ud800'] = 'two';"
        "module = type(sys)('m'); module.__file__ = '/etc/shadow';"
        "codecache.PyCodeCache.modules.append(module);"
        "wrapper = codecache.PyCodeCache.modules[0];"
        "kernel = [v for k, v in vars(wrapper).items() if k.startswith('cpp_fused')][0];"
        "setattr(wrapper, '../../../evil\\x1b[31m', kernel)"
    )
    job.send(plant + ";print('planted', flush=True)")
    job.wait_for("^planted")
    found = Found(job.pid)
    assert {"one", "two"} <= {f["content"] for f in found.all("fx_graph", "")}
    [shadow] = [f for f in found.files if f["origin"] == "/etc/shadow"]
    assert shadow["problem"] == "the file is not named like a source file"
    assert shadow["content"] == ""
    assert found.all("bytecode") == job.found.all("bytecode")
