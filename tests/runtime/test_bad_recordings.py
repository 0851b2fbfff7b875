"""`report` and `export` on recordings that are not, or no longer, what we wrote: never a crash, and
what was lost is said."""

import os
import random
import re
import sys
import time

import pytest

pytestmark = pytest.mark.root_bpf  # a real recording is damaged: one has to be made

TARGET = """
import time
def a(n):
    return b(n) + 1
def b(n):
    return sum(i for i in range(n))
print("ready", flush=True)
while True:
    a(1000)
    b(500)
"""
WARNING = re.compile(r"^warning: \S", re.M)


@pytest.fixture(scope="module")
def intact(tmp_path_factory):
    """The bytes of a recording of some seconds."""
    import support

    folder = tmp_path_factory.mktemp("intact")
    target = support.spawn([sys.executable, "-c", TARGET])
    dynprof = support.Dynprof(folder)
    try:
        result = dynprof.run("--pid", target.pid, "-F", "999", "-d", "3", "-o", folder / "out")
        assert result.rc == 0, result
        report = dynprof.run("report", folder / "out")
        assert report.rc == 0, report
        assert not WARNING.search(report.err), f"damage in an intact file\n{report}"
        return (folder / "out" / "recording.dynprof").read_bytes()
    finally:
        dynprof.close()
        target.kill()


def looked_at(dynprof, folder, content):
    """The report on these bytes; whatever they are, it ends in order and soon."""
    folder.mkdir()
    (folder / "recording.dynprof").write_bytes(content)
    report = dynprof.run("report", folder, timeout=20)
    assert report.rc in (0, 1), report
    if report.rc == 1:
        assert re.search(r"^error: \S", report.err, re.M), report
    return report


def says_so(report):
    return report.rc == 1 or WARNING.search(report.err)


@pytest.mark.parametrize(
    "content",
    [b"", b"\0", b"\0" * 70000, b"hello\n" * 1000, b"\xff" * 4096, b"DYNPROF\0" * 64,
     random.Random(1).randbytes(100_000)],
    ids=["empty", "one byte", "zeros", "text", "ones", "magic only", "noise"],
)
def test_garbage(dynprof, tmp_path, content):
    report = looked_at(dynprof, tmp_path / "x", content)
    assert report.rc == 1, report
    assert re.search(r"^hint: \S", report.err, re.M), report
    export = dynprof.run("export", tmp_path / "x", "-f", "chrome", "-o", tmp_path / "y.json")
    assert export.rc == 1 and "error: " in export.err, export
    assert not (tmp_path / "y.json").exists(), "an empty result was left behind"


def test_truncated_anywhere(dynprof, tmp_path, intact):
    content = intact
    rng = random.Random(2)
    cuts = sorted({0, 1, 7, 8, 16, 64, len(content) - 1, *(rng.randrange(len(content)) for _ in range(40))})
    readable = 0
    for cut in cuts:
        report = looked_at(dynprof, tmp_path / f"cut{cut}", content[:cut])
        assert says_so(report), f"cut at {cut} of {len(content)}\n{report}"
        readable += report.rc == 0
    assert readable >= len(cuts) // 4, f"only {readable} of {len(cuts)} truncated recordings readable"


def test_ends_between_two_chunks(dynprof, tmp_path, intact):
    """As a recorder that was killed leaves it: nothing is torn, the end is missing."""
    begins = [found.start() for found in re.finditer(re.escape(b"\xd7CHK"), intact)]
    assert len(begins) > 5
    for cut in begins[1:]:
        report = looked_at(dynprof, tmp_path / f"cut{cut}", intact[:cut])
        assert report.rc == 0 and WARNING.search(report.err), f"cut at {cut}\n{report}"
        assert "no end mark" in report.err and "no end mark" in report.out, report
    export = dynprof.run("export", tmp_path / f"cut{cut}", "-f", "folded", "-o", tmp_path / "folded")
    assert export.rc == 0 and "warning: the recording has no end mark" in export.err, export


def test_bit_flips(dynprof, tmp_path, intact):
    content = intact
    rng = random.Random(3)
    places = [*range(0, 64, 3), *(rng.randrange(len(content)) for _ in range(80))]
    for place in places:
        damaged = bytearray(content)
        damaged[place] ^= 1 << rng.randrange(8)
        report = looked_at(dynprof, tmp_path / f"flip{place}-{rng.random()}", bytes(damaged))
        assert says_so(report), f"flip at {place} of {len(content)}\n{report}"


def test_large_stretches_overwritten(dynprof, tmp_path, intact):
    content = intact
    rng = random.Random(4)
    for turn in range(20):
        damaged = bytearray(content)
        begin = rng.randrange(len(content))
        end = min(len(content), begin + rng.randrange(1, 5000))
        damaged[begin:end] = rng.choice([b"\0", b"\xff", b"\x80"]) * (end - begin)
        if damaged != content:
            looked_at(dynprof, tmp_path / f"stretch{turn}", bytes(damaged))


def test_every_format_from_a_truncated_recording(dynprof, tmp_path, intact):
    content = intact
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "recording.dynprof").write_bytes(content[: len(content) * 2 // 3])
    for name in ("pstats", "chrome", "folded", "html"):
        result = dynprof.run("export", tmp_path / "r", "-f", name, "-o", tmp_path / name)
        assert result.rc == 0, result
        assert WARNING.search(result.err), f"{name}: does not say what was lost\n{result}"
        assert (tmp_path / name).stat().st_size > 0


def test_not_a_file(dynprof, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "fifo", tmp_path / "empty", tmp_path / "missing", "/dev/zero"):
        began = time.monotonic()
        result = dynprof.run("report", path, timeout=20)
        assert result.rc == 1, result
        assert re.search(r"^error: \S", result.err, re.M), result
        assert time.monotonic() - began < 15


def test_export_does_not_overwrite(dynprof, tmp_path, intact):
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "recording.dynprof").write_bytes(intact)
    kept = tmp_path / "kept.json"
    kept.write_text("mine")
    result = dynprof.run("export", tmp_path / "r", "-f", "chrome", "-o", kept)
    assert result.rc == 1 and "kept.json" in result.err, result
    assert kept.read_text() == "mine"
