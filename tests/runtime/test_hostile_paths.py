"""Paths and names of programs are the target's to choose. In errors, hints and notes they must not become
commands to the terminal, or lines of their own."""

import os
import shutil
import sys
import time

import pytest

HOSTILE = "\x1b]0;owned\x07\x1b[2J\nerror: fake\r\x9b31m"


def only_text(result):
    text = result.err
    assert not [c for c in text if (ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160], repr(text)
    assert "\nerror: fake" not in text and not text.startswith("error: fake"), repr(text)
    return text


@pytest.fixture
def hostile_folder(tmp_path):
    folder = tmp_path / HOSTILE
    folder.mkdir()
    return folder


@pytest.mark.root_bpf
def test_a_program_that_is_not_python(dynprof, spawn, hostile_folder, tmp_path):
    program = hostile_folder / "sle\x1b[7mep"
    shutil.copy("/bin/sleep", program)
    target = spawn([program, "60"], ready=None)
    time.sleep(0.3)
    for verb in (["record", "-d", "1"], ["dump"], ["compiles"]):
        result = dynprof.run(*verb, "-p", target.pid, cwd=tmp_path)
        assert result.rc == 1, result
        assert "sle\\x1b[7mep" in only_text(result), result


@pytest.mark.root_bpf
def test_a_python_that_becomes_another_program(dynprof, spawn, hostile_folder, tmp_path):
    """Its path is in notes while it is recorded, and in the report."""
    program = hostile_folder / "python3"
    os.symlink(sys.executable, program)
    code = "import time\nprint('ready', flush=True)\nend = time.time() + 60\nwhile time.time() < end: sum(range(999))"
    target = spawn([program, "-c", code])
    result = dynprof.run("--pid", target.pid, "-d", "1", "-o", hostile_folder / "out")
    assert result.rc == 0, result
    assert "\\x1b]0;owned" in only_text(result), result
    assert not [c for c in result.out if ord(c) < 32 and c != "\n"], result


@pytest.mark.parametrize("verb", [["report"], ["export", "-f", "chrome", "-o", "x"]])
def test_recordings_that_do_not_exist(dynprof, hostile_folder, verb):
    result = dynprof.run(verb[0], hostile_folder / "none", *verb[1:])
    assert result.rc == 1, result
    assert "owned" in only_text(result), result


@pytest.mark.parametrize("args", [["--\x1b[2Jpid", "1"], ["\x1b[2Jverb"], ["--pid", "\x1b[2J"],
                                  ["--pid", "1", "-d", "\x1b[2J"], ["report", "x", "--\x1b[2J"]])
def test_wrong_usage(dynprof, args):
    result = dynprof.run(*args)
    assert result.rc == 2, result
    assert "\\x1b[2J" in only_text(result), result
