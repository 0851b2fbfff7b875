"""What user/target finds out about real processes, printed by tests/tools/target_dump.cpp and held
against what the process says of itself."""

import json
import os
import shutil
import signal
import subprocess
import time

import pytest

import support

pytestmark = pytest.mark.pythons(last="3.15")

PROGRAMS = support.REPO / "tests" / "programs"
STACKS = PROGRAMS / "target_stacks.py"
FAKE_TORCH = PROGRAMS / "fake_torch" / "main.py"
TOO_LONG = 4  # Unreadable::kTooLong


class Found:
    """target_dump's lines: the last value of each key, and the threads with their frames."""

    def __init__(self, pid, *what, user=None):
        tool = support.BUILD / "tests" / "target_dump"
        assert tool.exists(), f"{tool} does not exist: run make first"
        done = subprocess.run(
            [tool, str(pid), *what],
            capture_output=True,
            timeout=60,
            preexec_fn=support._drop_to(user) if user else None,
        )
        self.rc = done.returncode
        self.text = done.stdout.decode("utf-8", "surrogatepass")
        assert done.returncode in (0, 1), (done.returncode, self.text, done.stderr)
        self.lines = [line.partition(" ")[::2] for line in self.text.splitlines()]
        self.values = dict(self.lines)
        self.threads = {}
        frames = []
        for key, value in self.lines:
            if key == "thread":
                native, main, _ = value.split()
                frames = self.threads.setdefault((native, len(self.threads)), [])
                frames.append(main)
            elif key == "frame":
                unreadable, file, line, name, qualname, table = value.split("|")
                frames.append(
                    {
                        "unreadable": int(unreadable),
                        "file": unescaped(file),
                        "line": int(line),
                        "name": unescaped(name),
                        "qualname": unescaped(qualname),
                        "table": int(table),
                    }
                )
            elif key == "locals":
                frames[-1]["slots"] = sorted(
                    {word.rpartition(":")[0] for word in value.split()} - {""}
                )

    def __getitem__(self, key):
        return self.values[key]

    def all(self, key):
        return [value for k, value in self.lines if k == key]

    def stacks(self):
        return [frames[1:] for frames in self.threads.values()]


def unescaped(text):
    parts = text.split("\\x")
    return parts[0] + "".join(chr(int(p[:2], 16)) + p[2:] for p in parts[1:])


def stand(spawn, interpreter, plan):
    target = spawn([interpreter.path, STACKS, plan])
    truth = json.loads(target.wait_for("^ready (.*)").group(1))
    return target, truth


# ---- finding the interpreter ---------------------------------------------------------------------


def test_finds_the_interpreter(spawn, interpreter):
    target, truth = stand(spawn, interpreter, "threads")
    found = Found(target.pid)
    assert found["fault"] == "none", found.text
    assert found["version"] == ".".join(map(str, interpreter.version))
    assert ("libpython" in found["image"]) == interpreter.shared
    assert found["interpreters"] == "1"
    assert found["threads"] == str(len(truth))
    offset, _, agree = found["tstate_offset"].partition(" ")
    assert agree == f"{len(truth)}/{len(truth)}"
    if interpreter.minor < (3, 15):
        # A slot of glibc's thread-specific keys, not the thread-local that is NULL without the GIL.
        assert (int(offset) - 792) % 16 == 0 and 0 <= int(offset) - 792 < 32 * 16
    assert found["known_types"] == "true true true true true"


def assert_stacks(found, truth):
    """Each true stack, from the caller of the frame that noted it on, is one of those found."""
    seen = found.stacks()
    for stack in truth.values():
        tail = stack[1:]
        same = [s for s in seen if [strip(f) for f in s[-len(tail) :]] == [strip(f) for f in tail]]
        assert same, (tail, seen)


def strip(frame):
    return {k: frame[k] for k in ("file", "line", "name", "qualname", "table", "slots")}


def test_stacks_names_and_locals_are_the_true_ones(spawn, interpreter):
    target, truth = stand(spawn, interpreter, "threads")
    found = Found(target.pid, "frames")
    assert len(found.stacks()) == len(truth)
    assert all(f["unreadable"] == 0 for stack in found.stacks() for f in stack)
    assert_stacks(found, truth)
    deepest = max(len(stack) for stack in found.stacks())
    assert deepest > 40


def test_hard_names_are_kept_whole(spawn, interpreter):
    target, truth = stand(spawn, interpreter, "names")
    found = Found(target.pid, "frames")
    named = {f["name"]: f for stack in found.stacks() for f in stack if not f["unreadable"]}
    for stack in truth.values():
        frame = stack[1] if len(stack) > 1 and stack[0]["name"] == "stand" else stack[0]
        if len(frame["name"]) > 65_536:
            continue
        assert strip(named[frame["name"]]) == strip(frame)
    assert named["broken\udcff"]["table"] > 0
    assert named["table"]["table"] > 10_000
    refused = [f for stack in found.stacks() for f in stack if f["unreadable"]]
    assert [f["unreadable"] for f in refused] == [TOO_LONG]
    assert refused[0]["name"] == ""


def test_subinterpreters_are_told_apart(spawn, interpreter):
    target, _ = stand(spawn, interpreter, "subinterp")
    found = Found(target.pid, "frames")
    assert found["fault"] == "none", found.text
    assert found["interpreters"] == "2"
    inside = [frames for frames in found.threads.values() if "interpreter_main=false" in frames[0]]
    assert any(f["name"] == "inside" for frames in inside for f in frames[1:])


def hide_symbols(image, copy):
    """A copy without section headers, as sstrip leaves it: the loader needs none, and without them
    no symbol table is found."""
    data = bytearray(image.read_bytes())
    data[0x28:0x30] = bytes(8)  # e_shoff
    data[0x3C:0x40] = bytes(4)  # e_shnum, e_shstrndx
    copy.write_bytes(data)
    copy.chmod(0o755)


def home_of(interpreter):
    """A static interpreter finds its library by PYTHONHOME once it lies elsewhere."""
    prefix = subprocess.run(
        [interpreter.path, "-c", "import sys; print(sys.base_prefix)"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()
    return {"PYTHONHOME": prefix}


@pytest.mark.pythons(linkage="static")
def test_found_without_symbols_static(spawn, interpreter, tmp_path):
    copy = tmp_path / f"python3.{interpreter.minor[1]}"
    hide_symbols(support.Path(interpreter.path).resolve(), copy)
    target = spawn([copy, STACKS, "threads"], env=home_of(interpreter))
    found = Found(target.pid, "frames")
    assert found["fault"] == "none", found.text
    assert not found["found_by"].startswith("symbol")
    assert found["version"] == ".".join(map(str, interpreter.version))
    assert found["known_types"].split()[0] == "true"
    assert_stacks(found, json.loads(target.wait_for("^ready (.*)").group(1)))


@pytest.mark.pythons(linkage="shared")
def test_found_without_symbols_shared(spawn, interpreter, tmp_path):
    mapped = subprocess.run(
        [interpreter.path, "-c", "print(open('/proc/self/maps').read())"],
        capture_output=True, text=True, check=True,
    ).stdout
    image = next(w for w in mapped.split() if "/libpython3." in w)
    copy = tmp_path / support.Path(image).name
    hide_symbols(support.Path(image), copy)
    target = spawn([interpreter.path, STACKS, "threads"], env={"LD_LIBRARY_PATH": str(tmp_path)})
    found = Found(target.pid, "frames")
    assert found["fault"] == "none", found.text
    assert found["image"] == str(copy)
    assert not found["found_by"].startswith("symbol")
    assert found["version"] == ".".join(map(str, interpreter.version))
    assert_stacks(found, json.loads(target.wait_for("^ready (.*)").group(1)))


@pytest.mark.pythons(linkage="static")
def test_executable_deleted_or_replaced(spawn, interpreter, tmp_path):
    real = support.Path(interpreter.path).resolve()
    copy = tmp_path / "renamed-python"
    shutil.copy(real, copy)
    link = tmp_path / "link"
    link.symlink_to(copy)
    target = spawn([link, STACKS, "threads"], env=home_of(interpreter))
    assert Found(target.pid)["fault"] == "none"
    if os.geteuid() != 0:
        return
    copy.unlink()
    assert Found(target.pid)["fault"] == "none"
    copy.write_bytes(b"not an ELF file")
    found = Found(target.pid)
    assert found["fault"] == "none", found.text
    assert found["version"] == ".".join(map(str, interpreter.version))


@pytest.mark.pythons()  # not those that a script starts
def test_found_while_it_starts(interpreter):
    """From exec to the first line of Python: "starting" until it is there, never a wrong word."""
    for _ in range(20):
        process = subprocess.Popen([interpreter.path, "-c", "import time; time.sleep(60)"])
        try:
            faults = []
            deadline = time.monotonic() + 20
            while time.monotonic() < deadline:
                found = Found(process.pid)
                faults.append(found["fault"])
                if found["fault"] == "none":
                    assert found["version"] == ".".join(map(str, interpreter.version))
                    break
                assert found["fault"] == "starting", found.text
                assert found["retryable"] == "true"
            assert faults[-1] == "none", faults
        finally:
            process.kill()
            process.wait()


# ---- what is not one -----------------------------------------------------------------------------


def test_other_versions_are_named(spawn, interpreters):
    for old in interpreters:
        if old.minor >= (3, 10):
            continue
        target = spawn([old.path, "-c", "print('ready'); import time; time.sleep(60)"])
        found = Found(target.pid)
        assert found["fault"] == "unsupported"
        assert found["retryable"] == "false"
        assert found["version"] == f"3.{old.minor[1]}"
        assert f"Python 3.{old.minor[1]}" in found["error"]
        assert "3.10 to 3.15" in found["hint"]


def test_a_process_without_python(spawn):
    target = spawn(["sleep", "60"], ready=None)
    time.sleep(0.2)
    found = Found(target.pid)
    assert found["fault"] == "not-python"
    assert "sleep" in found["error"] and str(target.pid) in found["error"]


def test_no_such_process():
    found = Found(2**22 - 1)
    assert found["fault"] == "no-process" and "4194303" in found["error"]


def test_a_zombie(spawn):
    target = spawn(["true"], ready=None)
    deadline = time.monotonic() + 10
    while " Z " not in open(f"/proc/{target.pid}/stat").read() and time.monotonic() < deadline:
        time.sleep(0.01)
    found = Found(target.pid)
    assert found["fault"] == "no-process" and "ended" in found["error"]


def test_a_kernel_thread():
    try:
        ours = "kthreadd" in open("/proc/2/comm").read()
    except OSError:
        ours = False
    if not ours:
        pytest.skip("no kernel threads in this pid namespace")
    found = Found(2)
    assert found["fault"] == "no-process" and "kernel thread" in found["error"]


@pytest.mark.skipif(os.geteuid() != 0, reason="changes the user")
def test_without_privileges(spawn, interpreters):
    target = spawn([interpreters[-1].path, "-c", "print('ready'); import time; time.sleep(60)"])
    try:
        found = Found(target.pid, user="nobody")
    except PermissionError:
        pytest.skip("the build directory is not readable by others")
    assert found["fault"] == "not-readable"
    assert "root" in found["hint"] or "CAP_SYS_PTRACE" in found["hint"]


def test_the_target_is_left_alone(spawn, interpreter):
    """Reading stops nothing: the process is never traced and never in state T."""
    target, _ = stand(spawn, interpreter, "threads")
    for _ in range(20):
        Found(target.pid, "frames")
        status = open(f"/proc/{target.pid}/status").read()
        assert "TracerPid:\t0" in status
    assert target.alive()
    target.signal(signal.SIGTERM)
    assert target.wait() == -signal.SIGTERM


# ---- torch ---------------------------------------------------------------------------------------

LAYOUTS = ("2.6", "2.9", "2.13")


def compile_in(spawn, interpreter, layout, scenario):
    target = spawn([interpreter.path, FAKE_TORCH, scenario], env={"FAKE_TORCH_LAYOUT": layout})
    return Found(target.pid, "torch", "markers")


def markers(found):
    assert set(found.all("marker_resolved_too")) <= {"true"}, found.text
    return sorted(found.all("marker"))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_forward_markers(spawn, interpreter, layout):
    found = compile_in(spawn, interpreter, layout, "forward")
    autograd = "-" if layout == "2.6" else "None"
    assert markers(found) == [
        "attempt 2",
        f"compile autograd={autograd} frame=3 compile=7 user=user_function",
    ], found.text
    assert found["torch"] == f"{layout}.0+fake"


@pytest.mark.parametrize("layout", ("2.9", "2.13"))
def test_compiled_autograd_id(spawn, interpreter, layout):
    found = compile_in(spawn, interpreter, layout, "forward_autograd")
    assert "compile autograd=2 frame=3 compile=7 user=user_function" in markers(found)


@pytest.mark.parametrize("scenario", ("backward", "backward_dict"))
@pytest.mark.parametrize("layout", LAYOUTS)
def test_backward_markers(spawn, interpreter, layout, scenario):
    found = compile_in(spawn, interpreter, layout, scenario)
    autograd = "-" if layout == "2.6" else "None"
    assert markers(found) == [
        f"backward autograd={autograd} frame=12 compile=1 attempt=5 typed=true"
    ], found.text
    assert found["torch_complete"] == "true"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_backward_without_context_gives_nothing(spawn, interpreter, layout):
    found = compile_in(spawn, interpreter, layout, "backward_none")
    assert markers(found) == ["backward ? attempt=? typed=false"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_before_the_first_compile(spawn, interpreter, layout):
    """Markers are found; what only a first instance tells is said to be missing."""
    found = compile_in(spawn, interpreter, layout, "early")
    if interpreter.minor < (3, 14):
        assert found["torch_complete"] == "false"
        assert "CompileContext.compile_id" in found["torch_missing"]
    else:  # classes know the attributes that their methods set; a dataclass sets its own elsewhere
        assert found["torch_complete"] == ("false" if layout == "2.9" else "true")
        assert "CompileContext" not in found["torch_missing"]
    resolved = [line.split()[0] for line in found.all("resolved")]
    attempt = "_compile.<locals>._compile_inner" if layout == "2.6" else "compile_frame"
    assert resolved == ["_compile", attempt]


def test_torch_that_is_not_imported_far(spawn, interpreter):
    found = compile_in(spawn, interpreter, "2.13", "bare")
    assert found["torch"] == "2.13.0+fake"
    assert found["torch_missing"] == "torch._guards"
    assert found.all("resolved") == []


def test_no_torch(spawn, interpreter):
    target, _ = stand(spawn, interpreter, "threads")
    found = Found(target.pid, "torch", "markers")
    assert found["torch"] == "none" and found.all("resolved") == []


REAL = """
import sys, time, torch
def stay(gm, inputs):
    print("ready", flush=True)
    time.sleep(3600)
def forward_stays(x):
    return x.sin() + 1
if sys.argv[1] == "forward":
    torch.compile(forward_stays, backend=stay)(torch.ones(3))
else:
    from torch._dynamo.backends.common import aot_autograd
    from functorch.compile import make_boxed_func
    lazy = aot_autograd(fw_compiler=lambda gm, i: make_boxed_func(gm), bw_compiler=stay)
    y = torch.compile(lambda x: x.sin().sin(), backend=lazy)(torch.ones(3, requires_grad=True))
    y.sum().backward()
"""


def test_real_torch_forward(spawn, venv_python):
    target = spawn([venv_python, "-c", REAL, "forward"], timeout=180)
    found = Found(target.pid, "torch", "markers")
    assert markers(found) == [
        "attempt 0",
        "compile autograd=None frame=0 compile=0 user=forward_stays",
    ], found.text
    assert found["torch_complete"] == "true"
    assert {line.split()[0] for line in found.all("resolved")} >= {"_compile", "compile_frame"}


def test_real_torch_backward(spawn, venv_python):
    target = spawn([venv_python, "-c", REAL, "backward"], timeout=180)
    found = Found(target.pid, "torch", "markers")
    assert markers(found) == [
        "backward autograd=None frame=0 compile=0 attempt=0 typed=true"
    ], found.text


def test_real_torch_locals_are_the_marker_rules(spawn, venv_python):
    """Every rule that names this torch is found in it, in the slot CPython itself says."""
    text = (
        "import torch._dynamo.convert_frame as c, json, time\n"
        "import torch._functorch._aot_autograd.runtime_wrappers as w\n"
        "def slot(f, n):\n"
        "    k = f.__code__\n"
        "    names = list(k.co_varnames) + [x for x in k.co_cellvars if x not in k.co_varnames]\n"
        "    return names.index(n)\n"
        "print('ready', json.dumps([\n"
        "  ['_compile', 'compile_id', slot(c._compile, 'compile_id')],\n"
        "  ['compile_frame', 'attempt', slot(c.compile_frame, 'attempt')],\n"
        "  ['_AutogradBackwardCompiler.get_or_compile', 'saved_compile_context',\n"
        "   slot(w._AutogradBackwardCompiler.get_or_compile, 'saved_compile_context')]]))\n"
        "time.sleep(3600)\n"
    )
    target = spawn([venv_python, "-c", text], timeout=180)
    truth = json.loads(target.wait_for("^ready (.*)").group(1))
    found = Found(target.pid, "markers")
    slots = [line.split()[:3] for line in found.all("resolved")]
    assert slots == [[name, local, f"slot={slot}"] for name, local, slot in truth]
