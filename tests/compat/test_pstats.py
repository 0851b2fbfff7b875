"""The profile files load in what people open them with: pstats of every CPython found, snakeviz'
loader, gprof2dot and flameprof; and their numbers add up there.

DYNPROF_BUILD: the build directory, which holds tests/fake_export. DYNPROF_VENV: a virtual
environment with the viewers."""

import glob
import json
import os
import pathlib
import pstats
import re
import shutil
import subprocess

import pytest

BUILD = pathlib.Path(os.environ.get("DYNPROF_BUILD", "build"))
VENV = pathlib.Path(os.environ.get("DYNPROF_VENV", "build/venv"))
PERIOD_S = 0.01  # of FakeRecording


def interpreters():
    found = {}
    for pattern in ("~/.pyenv/versions/*/bin/python3", "/usr/bin/python3.[0-9]*",
                    "/usr/local/bin/python3.[0-9]*", "/usr/bin/python3"):
        for path in glob.glob(os.path.expanduser(pattern)):
            if not re.search(r"python3(\.\d+)?$", path):
                continue
            try:
                version = subprocess.run(
                    [path, "-c", "import sys; print('%d.%d.%d' % sys.version_info[:3])"],
                    capture_output=True, text=True, check=True, timeout=60).stdout.strip()
            except (OSError, subprocess.SubprocessError):
                continue
            found.setdefault((version, os.path.realpath(path)), path)
    return sorted((version, path) for (version, _), path in found.items())


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    directory = tmp_path_factory.mktemp("exported")
    subprocess.run([BUILD / "tests" / "fake_export", directory], check=True, timeout=120)
    return directory


@pytest.fixture(scope="module")
def profiles(exported):
    files = sorted(exported.glob("*.profile"))
    names = {file.name for file in files}
    assert {"session.profile", "_compile_inner_0_0.profile", "_compile_inner_0_0_1.profile",
            "_compile_inner_0_0.2.profile", "compile_backward_0_0_1.profile"} <= names
    return files


def venv_program(name):
    path = VENV / "bin" / name
    if not path.exists():
        pytest.skip(f"{name} is not in {VENV}")
    return path


# Run by other interpreters: no syntax newer than 3.8.
LOAD = r"""
import io, json, pstats, sys
out = {}
for path in sys.argv[1:]:
    text = io.StringIO()
    stats = pstats.Stats(path, stream=text)
    stats.strip_dirs().sort_stats("cumulative").print_stats(20)
    stats.print_callers(5)
    stats.print_callees(5)
    merged = pstats.Stats(path, stream=text)
    merged.add(path)
    assert merged.total_tt > stats.total_tt * 1.99
    out[path] = [stats.total_tt, stats.prim_calls, stats.total_calls, len(text.getvalue())]
print(json.dumps(out))
"""


@pytest.mark.parametrize("version,python", interpreters())
def test_every_pstats_loads_and_prints(profiles, version, python):
    result = subprocess.run([python, "-c", LOAD, *map(str, profiles)], capture_output=True,
                            text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    loaded = json.loads(result.stdout)
    assert len(loaded) == len(profiles)
    for total, primitive, calls, printed in loaded.values():
        assert total == pytest.approx(primitive * PERIOD_S)
        assert calls >= primitive > 0
        assert printed > 200


def test_some_interpreters_were_found():
    assert interpreters(), "no CPython to test with"


def load(path):
    return pstats.Stats(str(path)).stats


def test_tottime_is_the_samples_by_the_period(exported, profiles):
    ledger = json.loads((exported / "compiles.json").read_text())
    expected = {compile["name"]: compile["samples"] for compile in ledger["compiles"]}
    expected["session"] = ledger["samples"]
    for path in profiles:
        stats = load(path)
        samples = expected[path.name[:-len(".profile")]]
        assert sum(cc for cc, _, _, _, _ in stats.values()) == samples
        assert sum(tt for _, _, tt, _, _ in stats.values()) == pytest.approx(samples * PERIOD_S)


def test_callers_add_up(profiles):
    recursive = 0
    for path in profiles:
        stats = load(path)
        for key, (cc, nc, tt, ct, callers) in stats.items():
            assert 0 <= cc <= nc
            assert tt == pytest.approx(cc * PERIOD_S) and ct == pytest.approx(nc * PERIOD_S)
            for caller, (caller_cc, caller_nc, caller_tt, caller_ct) in callers.items():
                assert caller in stats
                assert 0 <= caller_cc <= caller_nc <= min(nc, stats[caller][1])
                assert caller_tt == pytest.approx(caller_cc * PERIOD_S)
                assert caller_ct == pytest.approx(caller_nc * PERIOD_S)
            if not callers:
                continue
            # A function on top of its stack has no caller there; only then may some be missing.
            from_callers = sum(value[0] for value in callers.values())
            on_stack = sum(value[1] for value in callers.values())
            assert from_callers <= cc
            if key in callers:
                recursive += 1
                assert on_stack >= nc
            elif key[2] not in ("<module>",):
                assert (from_callers, on_stack) == (cc, nc), key
    assert recursive > 0


def test_recursion_counts_once_per_stack(exported):
    stats = load(exported / "session.profile")
    cc, nc, _, _, callers = stats[("/home/me/train.py", 50, "walk")]
    assert (cc, nc) == (5, 5)
    assert callers[("/home/me/train.py", 50, "walk")][:2] == (5, 5)
    assert callers[("/home/me/train.py", 20, "step")][:2] == (0, 5)


def test_keys_are_those_of_cprofile(exported):
    stats = load(exported / "session.profile")
    assert ("/home/me/train.py", 20, "step") in stats, "co_name, not the qualname"
    assert ("~", 0, "<_PyObject_Malloc in python3.11>") in stats
    assert ("~", 0, "<do_syscall_64 in [kernel]>") in stats
    assert ("~", 0, "<no symbol in libtorch_cpu.so>") in stats
    assert ("~", 0, "<stale code>") in stats


def test_hostile_names_are_kept_whole(exported):
    names = {key[2] for key in load(exported / "_compile_inner_1_0.profile")}
    for name in ("new\nline", "a\x1b[31mred", "../../etc/passwd", "\"quo'ted\\", "x" * 10000,
                 "\\udc80surrogate", "\\xff\\xfe not utf-8", "semi;colon", "",
                 "<html>&amp;", "\u202eoverride"):
        assert name in names


def test_a_compile_begins_with_torchs_own_function(exported):
    stats = load(exported / "_compile_inner_0_0.profile")
    roots = [key for key, value in stats.items() if not value[4]]
    assert [root[2] for root in roots] == ["_compile"]


SNAKEVIZ = r"""
import json, sys
from pstats import Stats
from snakeviz.stats import json_stats, table_rows
for path in sys.argv[1:]:
    stats = Stats(path)
    rows = table_rows(stats)
    tree = json_stats(stats)
    json.loads(json.dumps(tree))
    assert len(rows) == len(stats.stats), path
    # It leaves out what neither calls nor is called.
    alone = [key for key, callees in stats.all_callees.items()
             if not callees and not stats.stats[key][4]]
    assert len(tree) == len(rows) - len(alone) > 0, path
"""


def test_snakeviz_loads(profiles):
    subprocess.run([venv_program("python3"), "-c", SNAKEVIZ, *map(str, profiles)], check=True,
                   timeout=120)


def test_gprof2dot_reads(profiles):
    program = venv_program("gprof2dot")
    for path in profiles:
        result = subprocess.run(
            [program, "-f", "pstats", "--node-label=total-time-percentage",
             "--node-label=self-time-percentage", "--node-label=total-time", path],
            capture_output=True, timeout=120)
        assert result.returncode == 0, (path, result.stderr.decode())
        assert result.stdout.startswith(b"digraph {")
        assert b"->" in result.stdout
        if shutil.which("dot"):
            svg = subprocess.run(["dot", "-Tsvg"], input=result.stdout, capture_output=True,
                                 timeout=120)
            assert svg.returncode == 0, (path, svg.stderr.decode())
            assert b"</svg>" in svg.stdout


def test_gprof2dot_reads_folded_stacks(exported):
    program = venv_program("gprof2dot")
    result = subprocess.run([program, "-f", "collapse", exported / "session.folded"],
                            capture_output=True, timeout=120)
    assert result.returncode == 0, result.stderr.decode()
    assert b"_compile" in result.stdout


def test_flameprof_reads(profiles):
    venv_program("flameprof")
    python = venv_program("python3")
    for path in profiles:
        result = subprocess.run([python, "-m", "flameprof", path], capture_output=True,
                                timeout=120)
        assert result.returncode == 0, (path, result.stderr.decode())
        assert b"</svg>" in result.stdout


def test_folded_lines_have_a_stack_and_a_count(exported):
    ledger = json.loads((exported / "compiles.json").read_text())
    lines = (exported / "session.folded").read_bytes().split(b"\n")
    assert lines.pop() == b""
    total = 0
    for line in lines:
        stack, count = line.rsplit(b" ", 1)
        assert stack.startswith(b"[") and count.isdigit()
        assert not any(byte < 0x20 or byte == 0x7f for byte in line)
        stack.decode("utf-8")
        total += int(count)
    assert total == ledger["samples"]
    assert any(line.startswith(b"[0/0_1];") for line in lines)


def test_the_report_fits_and_is_safe_to_print(exported):
    text = (exported / "report.txt").read_text("utf-8")
    for line in text.splitlines():
        assert len(line) <= 100, line
        assert line.isprintable() or line == "", repr(line)
