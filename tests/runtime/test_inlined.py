"""Inlined functions and source lines of native frames: against what a program knows of itself,
against addr2line, with a separate debug file, from elsewhere, and with DWARF that is damaged."""

import functools
import os
import re
import shutil
import subprocess
from collections import Counter

import pytest

import samples
import support
from support import split_debug, tool

pytestmark = pytest.mark.root_bpf

ROUNDS = 4000  # of the program, about 1.5 s
SOURCE = support.REPO / "tests" / "programs" / "native" / "inlined_work.cpp"


@functools.cache
def lines():
    """The program's own marks: {"grind": 13, ...}."""
    marks = {}
    for number, line in enumerate(SOURCE.read_text().splitlines(), 1):
        if found := re.search(r"// @([\w-]+)$", line):
            marks[found[1]] = number
    return marks


def build(path, *flags):
    path.parent.mkdir(parents=True, exist_ok=True)
    command = [tool("g++"), "-O2", "-g", "-Wl,--build-id", *flags, "-o", path, SOURCE]
    subprocess.run(command, check=True)
    return path


@pytest.fixture(scope="session")
def program(tmp_path_factory):
    return build(tmp_path_factory.mktemp("inlined") / "inlined_work")


class Recorded:
    def __init__(self, folder, target, done):
        self.directory, self.done, self.object = folder / "out", done, str(target)
        self.dump = samples.Dump(self.directory / "recording.dynprof")

    def stacks(self):
        """The program's own part of each whole stack, innermost first."""
        for sample in self.dump.samples:
            if sample.flags & samples.NATIVE_CUT:
                continue  # its first moments, without unwind tables
            stack = self.dump.whole_stack(sample.stack, inlined=True)
            own = [frame for frame in stack if frame.file == self.object]
            if own:
                yield own

    @property
    def notes(self):
        return [line for line in self.done.err.splitlines() if "source lines of" in line]


def record(dynprof, folder, target):
    done = dynprof.run("record", "-F", 999, "-o", folder / "out", "--", target, ROUNDS)
    assert done.rc == 0, done
    return Recorded(folder, target, done)


@pytest.fixture(scope="module")
def recorded(require_root_bpf, program, tmp_path_factory):
    folder = tmp_path_factory.mktemp("recorded")
    dynprof = support.Dynprof(folder)
    try:
        return record(dynprof, folder, program)
    finally:
        dynprof.close()


def expect_known_chain(run):
    """All stacks: what is inlined in work(), and its lines, are those of the source."""
    at = lines()
    grind = "unsigned long deep::grind<3>(unsigned long)"
    chain = [("deep::Mill::twist(unsigned long)", at["twist"], at["twist-declared"], True),
             ("operator()", at["lambda"], 0, True),
             ("work(unsigned long)", at["work"], at["work-declared"], False)]
    seen = Counter()
    for stack in run.stacks():
        assert all(os.path.samefile(frame.source, SOURCE) for frame in stack if frame.source), stack
        functions = [(frame.function, frame.line, frame.declared, frame.inlined) for frame in stack]
        names = [frame.function for frame in stack]
        if "main" not in names:
            seen["other"] += 1  # start-up, or taken before its file was known
        elif grind in names:
            assert names[0] == grind and stack[0].inlined
            assert stack[0].line in (at["grind"], at["grind-loop"])
            assert stack[0].declared == at["grind-declared"]
            assert functions[1:4] == chain
            assert stack[4].line == at["main-work"] and names[4:] == ["main", "_start"]
            seen["work"] += 1
        elif "plain" in names:
            assert names == ["plain", "main", "_start"]
            assert stack[0].line in range(at["plain-declared"], at["plain-loop"] + 4)
            assert stack[1].line == at["main-plain"]
            seen["plain"] += 1
        else:
            seen["other"] += 1
    total = sum(seen.values())
    assert total > 500, run.done
    assert seen["work"] > total / 2 and seen["plain"] > total / 20, seen
    assert seen["other"] < total / 50, seen


def test_chains_and_lines_are_those_of_the_source(recorded):
    expect_known_chain(recorded)
    assert not recorded.notes


def readelf(*options):
    command = [tool("readelf"), *options]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@functools.cache
def load_addresses(path):
    """(offset, size, address) of the file's executable segments."""
    pattern = r"LOAD +0x(\w+) 0x(\w+) 0x\w+ 0x(\w+) 0x\w+ R E"
    found = re.findall(pattern, readelf("-lW", path))
    return [(int(offset, 16), int(size, 16), int(address, 16)) for offset, address, size in found]


def addresses_of(path, offset):
    return next(offset - begin + at for begin, size, at in load_addresses(path)
                if begin <= offset < begin + size)


def addr2line(path, addresses):
    """{address: [(function, file, line), ...]}, innermost first."""
    command = [tool("addr2line"), "-a", "-i", "-f", "-C", "-e", path]
    asked = "\n".join(map(hex, addresses))
    done = subprocess.run(command, input=asked, capture_output=True, text=True, check=True)
    found, rows = {}, done.stdout.splitlines()
    while rows:
        if rows[0].startswith("0x"):
            chain = found.setdefault(int(rows.pop(0), 16), [])
            continue
        function, place = rows.pop(0), rows.pop(0).split(" (discriminator")[0]
        file, _, line = place.rpartition(":")
        chain.append((function, file, int(line) if line.isdigit() else 0))
    return found


def compare_with_addr2line(run, path):
    """Every chain recorded in this file; returns how many, and how many have something inlined."""
    ours = {}
    for sample in run.dump.samples:
        stack = run.dump.whole_stack(sample.stack, inlined=True)
        chain = []
        for frame in stack:
            if frame.file != str(path):
                chain = []
                continue
            chain.append(frame)
            if not frame.inlined:
                ours[addresses_of(path, frame.offset)] = chain
                chain = []
    theirs = addr2line(path, sorted(ours))
    for address, chain in ours.items():
        expected = theirs[address]
        if expected[0][2] == 0 and not chain[0].line:
            continue  # no line is known
        assert [frame.line for frame in chain] == [line for _, _, line in expected], hex(address)
        # For the innermost it takes the symbol's name and file where DWARF has no linkage name.
        for frame, (function, file, _) in list(zip(chain, expected, strict=True))[1:]:
            assert os.path.normpath(frame.source) == os.path.normpath(file), hex(address)
            if frame.inlined and frame.function != "operator()":
                assert frame.function[:900] == function[:900], hex(address)
    return len(ours), sum(len(chain) > 1 for chain in ours.values())


def test_as_addr2line_has_it(recorded, program):
    count, inlined = compare_with_addr2line(recorded, program)
    assert count >= 3 and inlined >= 1


@pytest.mark.pythons("3.11", "3.12", linkage="shared")
def test_an_interpreter_as_addr2line_has_it(interpreter, dynprof, spawn, tmp_path):
    script = ("import json, re\nprint('ready', flush=True)\n"
              "text = json.dumps({str(n): [n, n / 3] for n in range(200)})\n"
              "while True:\n"
              "    json.loads(text); sorted(re.findall(r'\\d+', text)); str(2 ** 3000)\n")
    process = spawn([interpreter.path, "-c", script])
    done = dynprof.run("record", "-F", 999, "-d", "2s", "-o", tmp_path / "out", "-p", process.pid)
    assert done.rc == 0, done
    run = Recorded(tmp_path, "", done)
    library = next(frame.file for frame in run.dump.frames
                   if os.path.basename(frame.file).startswith("libpython"))
    if ".debug_info" not in readelf("-SW", library):
        pytest.skip(f"{interpreter} was built without DWARF")
    count, inlined = compare_with_addr2line(run, library)
    assert count > 50 and inlined > 5, (count, inlined)


def test_with_a_separate_debug_file(program, dynprof, tmp_path):
    bare, debug = split_debug(program, tmp_path)
    beside = bare.parent / ".debug" / debug.name
    beside.parent.mkdir()
    shutil.copy(debug, beside)
    subprocess.run([tool("objcopy"), f"--add-gnu-debuglink={beside}", bare], check=True)
    expect_known_chain(record(dynprof, tmp_path, bare))


def test_from_elsewhere(program, dynprof, tmp_path):
    bare, debug = split_debug(program, tmp_path)
    run = record(dynprof, tmp_path, bare)
    own = [frame for frame in run.dump.frames if frame.file == str(bare)]
    assert own and not any(frame.inlined or frame.source for frame in own)
    folded = tmp_path / "out.folded"
    done = dynprof.run("export", run.directory, "-f", "folded", "-o", folded,
                       "--symbols", debug.parent)
    assert done.rc == 0 and "with source lines" in done.err, done
    wanted = ("main;work(unsigned long);operator();deep::Mill::twist(unsigned long);"
              "unsigned long deep::grind<3>(unsigned long) ")
    assert wanted in folded.read_text()


def test_outputs_show_them(recorded, dynprof, tmp_path):
    at = lines()
    report = dynprof.run("report", recorded.directory, "-s", "sym").out
    grind = r"unsigned long deep::grind<3>\(unsigned long\)"
    assert re.search(rf"^ +\d+\.\d+%  \[\.\] {grind} \(inlined\)$", report, re.M), report
    text = tmp_path / "perf.txt"
    done = dynprof.run("export", recorded.directory, "-f", "perf-srcline", "-o", text)
    assert done.rc == 0, done
    wanted = (r"\t +\w+ deep::Mill::twist\(unsigned long\) \(inlined\)\n"
              rf"  \S*inlined_work\.cpp:{at['twist']}\n"
              r"\t +\w+ operator\(\) \(inlined\)\n"
              rf"  \S*inlined_work\.cpp:{at['lambda']}\n"
              rf"\t +\w+ work\(unsigned long\) \({re.escape(recorded.object)}\)\n"
              rf"  \S*inlined_work\.cpp:{at['work']}\n")
    assert re.search(wanted, text.read_text())


def test_without_dwarf_nothing_is_read(dynprof, tmp_path):
    plain = build(tmp_path / "plain", "-g0")
    run = record(dynprof, tmp_path, plain)
    names = Counter(frame.function for stack in run.stacks() for frame in stack)
    assert names["work(unsigned long)"] > 100
    assert not any(frame.inlined or frame.source for stack in run.stacks() for frame in stack)
    assert not run.notes


def section(path, name):
    pattern = rf" {re.escape(name)} +PROGBITS +\w+ (\w+) (\w+)"
    found = re.search(pattern, readelf("-SW", path))
    return int(found[1], 16), int(found[2], 16)


def damaged(program, path, name, content):
    """A copy of which a section is overwritten; what runs is the same."""
    data = bytearray(program.read_bytes())
    offset, size = section(program, name)
    data[offset : offset + size] = (content * (size // len(content) + 1))[:size]
    path.write_bytes(data)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("name, content", [
    (".debug_info", b"\xff"), (".debug_info", b"\x00\x01\x7f"), (".debug_info", b"hostile "),
    (".debug_abbrev", b"\xff"), (".debug_abbrev", b"\x01\x2e\x01\x03"),
    (".debug_line", b"\xff\x00\xfe"), (".debug_str", b"x"), (".debug_rnglists", b"\x07"),
], ids=lambda value: value if isinstance(value, str) else value.hex())
def test_damaged_dwarf_harms_nothing_else(name, content, program, dynprof, tmp_path):
    bad = damaged(program, tmp_path / "bad", name, content)
    run = record(dynprof, tmp_path, bad)
    assert run.dump.complete and not run.dump.damage
    frames = [frame for stack in run.stacks() for frame in stack]
    functions = Counter(frame.function for frame in frames if not frame.inlined)
    assert functions["work(unsigned long)"] > 100 and functions["plain"] > 10, functions
    assert len(run.notes) <= 1
    if name in (".debug_info", ".debug_abbrev"):
        assert len(run.notes) == 1, run.done
        assert "source lines of 1 file could not be read: bad: " in run.notes[0]
        assert not any(frame.inlined for frame in frames)


def test_a_file_cut_short(program, dynprof, tmp_path):
    """It runs: code comes first. Its section table is gone."""
    offset, size = section(program, ".debug_info")
    cut = tmp_path / "cut"
    shutil.copy(program, cut)
    os.truncate(cut, offset + size // 2)
    run = record(dynprof, tmp_path, cut)
    assert run.dump.complete and not run.dump.damage and len(run.dump.samples) > 100


def test_the_reader_has_no_rights(program):
    """It ends at once where it is called by hand, and does nothing."""
    done = subprocess.run([support.BINARY, "source-places"], stdin=subprocess.DEVNULL,
                          capture_output=True, timeout=60)
    assert done.returncode != 0 and done.stdout == b""
