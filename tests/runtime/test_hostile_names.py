"""Names in the target are the target's: newlines, escapes, paths, quotes, 10,000 characters, lone
surrogates. They must not become terminal commands, report rows, paths, or broken JSON."""

import json
import pstats
import re
import subprocess

import pytest

import support

pytestmark = pytest.mark.root_bpf

HOSTILE = {
    "newline": "line\nfeed\r99.99% fake row",
    "ansi": "\x1b[2J\x1b]0;owned\x07red",
    "path": "../../../../tmp/dynprof-escaped",
    "quotes": "a\"b'c\\d</script>;semi colon",
    "long": "L" * 10_000,
    "surrogate": "s\udcff\ud800end",
    "c1": "\x9b31m\u202emirror\u0085",
    "nul": "nu\0l",
}

TARGET = """
import sys, time
names = {names!r}
def template(n):
    return sum(i * i for i in range(n))
functions = []
for name in names.values():
    changes = dict(co_name=name, co_filename="/nowhere/" + name + ".py")
    if hasattr(template.__code__, "co_qualname"):
        changes["co_qualname"] = "Class." + name
    functions.append(type(template)(template.__code__.replace(**changes), globals()))
print("ready", flush=True)
while True:
    for function in functions:
        function(2000)
"""


@pytest.fixture
def recorded(dynprof, spawn, tmp_path, interpreter):
    # By file: a lone surrogate cannot be passed on a command line.
    script = tmp_path / "target.py"
    script.write_text(TARGET.format(names=HOSTILE), encoding="ascii", errors="strict")
    target = spawn([interpreter.path, script])
    result = dynprof.run("--pid", target.pid, "-F", "999", "-d", "3", "-o", tmp_path / "out")
    assert result.rc == 0, result
    assert target.alive()
    return tmp_path / "out", result


def control_characters(text):
    return sorted({c for c in text if (ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160})


def test_hostile_names_stay_names(dynprof, recorded, tmp_path):
    out, result = recorded
    texts = {"stdout": result.out, "stderr": result.err, "report.txt": (out / "report.txt").read_bytes().decode()}
    for where, text in texts.items():
        assert not control_characters(text), f"{where} has {control_characters(text)!r}"
        assert "\u202e" not in text, f"{where} has a right-to-left override"
    report = texts["report.txt"]
    # A name cannot start a line of its own, and cannot push the rest of a row out of sight.
    assert not re.search(r"^\s*99\.99% fake row", report, re.M)
    assert max(map(len, report.splitlines())) <= 400
    for part in ("fake row", "owned", "dynprof-escaped", "semi colon", "LLLL", "end", "mirror"):
        assert part in report, f"{part!r} is missing: its samples went astray\n{report}"
    escaped = [p for p in tmp_path.parent.rglob("*dynprof-escaped*")]
    assert not escaped, escaped

    exports = {}
    for name in ("chrome", "pstats", "folded", "speedscope", "json"):
        exported = dynprof.run("export", out, "-f", name, "-o", tmp_path / name)
        if exported.rc == 2 and "unknown" in exported.err and name in ("speedscope", "json"):
            continue  # not a format of this version
        assert exported.rc == 0, exported
        exports[name] = (tmp_path / name).read_bytes()
    trace = json.loads(exports["chrome"])
    names = {str(event.get("name")) for event in trace["traceEvents"]}
    assert any("fake row" in name for name in names) and any("semi colon" in name for name in names)
    for name in ("speedscope", "json"):
        if name in exports:
            json.loads(exports[name])
    functions = {key[2] for key in pstats.Stats(str(tmp_path / "pstats")).stats}
    assert any("dynprof-escaped" in function for function in functions), functions
    for line in exports["folded"].decode().splitlines():
        # One stack a line: "frame;frame;… count".
        assert re.fullmatch(r"[^\x00-\x08\x0b-\x1f\x7f]+ \d+", line), repr(line[:200])


def test_names_that_fill_memory_end_their_reader(tmp_path):
    """A C++ name of 250 bytes may stand for gigabytes of text. The process that is given such names ends."""
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    hostile = "_Z1f1TIiiE" + "".join(f"S_IS{digit}_S{digit}_E" for digit in digits[:35])

    def demangled(name):
        (tmp_path / "name").write_text(name)
        with open(tmp_path / "name", "rb") as request:
            done = subprocess.run(
                ["bash", "-c", f'exec "$0" long-name 3<&{request.fileno()}', support.BUILD / "dynprof-bpf"],
                pass_fds=[request.fileno()],
                capture_output=True,
                timeout=300,  # it ends after 20 s of CPU time, which take longer on a busy machine
            )
        return done.returncode, done.stdout

    assert demangled("_ZN2at6native3addERKNS_6TensorE") == (0, b"at::native::add(at::Tensor const&)")
    assert demangled("main") == (10, b"")
    status, text = demangled(hostile)
    assert status != 0 and text == b""
