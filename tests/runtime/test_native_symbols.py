"""Names of native frames: from the mapped file itself, its debug file, a perf map, or later from files
with the same build-id; and what happens when tables have no place to be."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import samples
import support
from support import split_debug, tool

pytestmark = pytest.mark.root_bpf

SOURCE = support.REPO / "tests" / "programs" / "native" / "named_work.cpp"
LOCAL, EXPORTED = "spin_in_a_template", "exported_work"
PROGRAM = """
import ctypes, sys
work = ctypes.CDLL(sys.argv[1]).exported_work
work.argtypes, work.restype = [ctypes.c_long], ctypes.c_double
work(10)
exec(sys.argv[2] if len(sys.argv) > 2 else "")
print("ready", flush=True)
while True:
    work(1_000_000)
"""


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    path = tmp_path_factory.mktemp("named") / "named_work.so"
    flags = ["-O2", "-fPIC", "-shared", "-Wl,--build-id"]
    subprocess.run([tool("g++"), *flags, "-o", path, SOURCE], check=True)
    return path


class Recorded:
    def __init__(self, folder, pid, done):
        self.directory, self.pid, self.done = folder / "out", pid, done
        self.dump = samples.Dump(self.directory / "recording.dynprof")

    def frames_of(self, name):
        """Native frames in objects of this base name, by function."""
        found = {}
        for sample in self.dump.of_pid(self.pid):
            for frame in self.dump.whole_stack(sample.stack):
                if frame.kind == samples.NATIVE_FRAME and os.path.basename(frame.file) == name:
                    found[frame.function] = found.get(frame.function, 0) + 1
        return found

    def has(self, name, function):
        return sum(count for found, count in self.frames_of(name).items() if function in found)


def record(dynprof, spawn, folder, argv, *options):
    target = spawn(argv)
    done = dynprof.run("record", "-F", 499, "-d", "1s", "-o", folder / "out", *options, "-p", target.pid)
    assert done.rc == 0, done
    return Recorded(folder, target.pid, done)


def argv_for(library, then=""):
    return [sys.executable, "-c", PROGRAM, library, then]


def test_own_symbols(library, dynprof, spawn, tmp_path):
    run = record(dynprof, spawn, tmp_path, argv_for(library))
    assert run.has(library.name, LOCAL) > 50
    assert run.has(library.name, EXPORTED) > 50
    full = [name for name in run.frames_of(library.name) if LOCAL in name]
    assert "std::vector<" in full[0], "the whole name is in the recording"
    shown = dynprof.run("report", run.directory, "-s", "dso,sym").out
    assert f"[.] double deep::inside::{LOCAL}<…>(…)" in shown, shown
    assert all(len(line) <= 100 for line in shown.splitlines())


def build_id(path):
    text = subprocess.run([tool("readelf"), "-n", path], capture_output=True, text=True, check=True)
    return text.stdout.split("Build ID: ")[1].split()[0]


def test_build_ids_are_recorded(library, dynprof, spawn, tmp_path):
    run = record(dynprof, spawn, tmp_path, argv_for(library))
    objects = {name: (identity, segments) for name, identity, segments in run.dump.objects}
    assert objects[str(library)] == (build_id(library), 1)


def test_the_vdso_has_names(dynprof, spawn, tmp_path):
    program = "import time\nprint('ready', flush=True)\nwhile True: time.monotonic()"
    run = record(dynprof, spawn, tmp_path, [sys.executable, "-c", program])
    assert run.has("[vdso]", "clock_gettime") > 5, run.frames_of("[vdso]")
    assert [row[2] for row in run.dump.objects if row[0] == "[vdso]"] == [1]


def test_names_from_elsewhere(library, dynprof, spawn, tmp_path):
    bare, debug = split_debug(library, tmp_path)
    run = record(dynprof, spawn, tmp_path, argv_for(bare))
    assert run.has(bare.name, LOCAL) == 0
    before = dynprof.run("report", run.directory, "-s", "dso,sym")
    assert LOCAL not in before.out
    after = dynprof.run("report", run.directory, "-s", "dso,sym", "--symbols", debug.parent)
    assert after.rc == 0 and f"{LOCAL}<…>" in after.out, after
    # By build-id, as distributions keep them; and for every format.
    identity = build_id(library)
    kept = tmp_path / "ids" / ".build-id" / identity[:2]
    kept.mkdir(parents=True)
    shutil.copy(debug, kept / f"{identity[2:]}.debug")
    folded = tmp_path / "out.folded"
    done = dynprof.run("export", run.directory, "-f", "folded", "-o", folded, "--symbols", tmp_path / "ids")
    assert done.rc == 0 and LOCAL in folded.read_text()


def test_files_of_another_build_id_are_refused(library, dynprof, spawn, tmp_path):
    bare, debug = split_debug(library, tmp_path)
    run = record(dynprof, spawn, tmp_path, argv_for(bare))
    flags = ["-O1", "-fPIC", "-shared", "-Wl,--build-id", "-DOTHER"]
    subprocess.run([tool("g++"), *flags, "-o", debug, SOURCE], check=True)
    assert build_id(debug) != build_id(library)
    shown = dynprof.run("report", run.directory, "-s", "dso,sym", "--symbols", debug.parent)
    assert shown.rc == 0 and LOCAL not in shown.out
    assert "different build-id" in shown.err


def test_debug_file_by_link(library, dynprof, spawn, tmp_path):
    bare, debug = split_debug(library, tmp_path)
    beside = bare.parent / ".debug" / debug.name
    beside.parent.mkdir()
    shutil.copy(debug, beside)
    subprocess.run([tool("objcopy"), f"--add-gnu-debuglink={beside}", bare], check=True)
    run = record(dynprof, spawn, tmp_path, argv_for(bare))
    assert run.has(bare.name, LOCAL) > 50


def test_deleted_and_replaced_while_mapped(library, dynprof, spawn, tmp_path):
    copy = tmp_path / "going.so"
    shutil.copy(library, copy)
    # Another program lies at its path when we look.
    then = "import os, shutil; os.remove(sys.argv[1]); shutil.copy('/bin/true', sys.argv[1])"
    run = record(dynprof, spawn, tmp_path, argv_for(copy, then))
    assert run.has(copy.name, LOCAL) > 50
    cut = run.dump.counter("native_no_table") + run.dump.counter("native_no_rule")
    assert cut <= 5, run.dump.trailer


def test_another_mount_namespace(library, dynprof, spawn, tmp_path):
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    inside = (f"mount -t tmpfs none {hidden} && cp {library} {hidden}/inside.so && "
              f'exec "$@" {hidden}/inside.so')
    argv = [tool("unshare"), "-m", "sh", "-c", inside, "sh", sys.executable, "-c", PROGRAM]
    run = record(dynprof, spawn, tmp_path, argv)
    assert not (hidden / "inside.so").exists()
    assert run.has("inside.so", LOCAL) > 50


@pytest.mark.pythons(first="3.12")
def test_perf_maps_name_code_generated_at_run_time(interpreter, dynprof, spawn, tmp_path):
    program = ("def busy(n):\n    return sum(i * i for i in range(n))\n"
               "print('ready', flush=True)\nwhile True:\n    busy(20_000)\n")
    script = tmp_path / "busy.py"
    script.write_text(program)
    run = record(dynprof, spawn, tmp_path, [interpreter.path, "-X", "perf", script])
    perf_map = f"perf-{run.pid}.map"
    names = run.frames_of(perf_map)
    assert any(name.startswith("py::busy:") for name in names), names
    Path("/tmp", perf_map).unlink(missing_ok=True)


@pytest.mark.parametrize("kind", ["of another", "open to all", "nowhere", "a link"])
def test_a_cache_that_is_not_ours_is_refused(kind, library, dynprof, spawn, tmp_path):
    cache = tmp_path / "cache"
    if kind == "nowhere":
        cache = tmp_path / "no" / "cache"
    elif kind == "a link":
        (tmp_path / "real").mkdir()
        cache.symlink_to(tmp_path / "real")
    else:
        cache.mkdir(mode=0o700)
        os.chmod(cache, 0o777 if kind == "open to all" else 0o700)
        if kind == "of another":
            os.chown(cache, 65534, 65534)
    run = record(dynprof, spawn, tmp_path, argv_for(library), "--table-cache", cache)
    said = [line for line in run.done.err.splitlines() if "unwind tables are not kept" in line]
    assert len(said) == 1, run.done.err
    assert run.has(library.name, LOCAL) > 50, "all works as well without"


def test_without_memory_for_tables(library, dynprof, spawn, tmp_path):
    run = record(dynprof, spawn, tmp_path, argv_for(library), "--table-memory", "4K")
    # Those of all processes, and of this one, each once.
    said = [line for line in run.done.err.splitlines() if "take too much memory" in line]
    assert said and len(said) == len(set(said)) <= 2, run.done.err
    python = [sample for sample in run.dump.of_pid(run.pid) if not sample.flags & samples.NO_PYTHON]
    assert len(python) > 50
    assert all(any(frame.function == "<module>" for frame in run.dump.stack(sample.stack))
               for sample in python)
    assert run.dump.counter("native_no_table") > 50


def test_an_interpreter_without_its_loops_symbol(dynprof, spawn, tmp_path):
    """Both halves are there, marked as not put together, and one line says why."""
    image = Path("/usr/bin/python3.11")
    if not image.exists():
        pytest.skip(f"no {image}")
    loop = b"_PyEval_EvalFrameDefault"
    original = image.read_bytes()
    assert loop in original
    nameless = tmp_path / "python3.11"
    nameless.write_bytes(original.replace(loop, b"X" * len(loop)))
    nameless.chmod(0o755)
    program = "print('ready', flush=True)\nwhile True: sorted(range(1000), key=lambda n: -n)"
    run = record(dynprof, spawn, tmp_path, [nameless, "-c", program])
    said = [line for line in run.done.err.splitlines() if "no symbol for the interpreter's loop" in line]
    assert len(said) == 1, run.done.err
    both = 0
    for sample in run.dump.of_pid(run.pid):
        kinds = {frame.kind for frame in run.dump.whole_stack(sample.stack)}
        if {samples.PYTHON_FRAME, samples.NATIVE_FRAME} <= kinds:
            both += 1
            assert sample.flags & samples.UNMERGED
    assert both > 50
