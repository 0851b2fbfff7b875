"""`compare` of two real recordings: the function that got slower is found, chance is called chance, and what is no
recording is refused as `report` refuses it."""

import re
import sys
import tempfile
import time
from pathlib import Path

import pytest

import browser as browsers
import support

pytestmark = pytest.mark.root_bpf

# Spends `share` percent of its time in hot().
TARGET = """
import sys, time
share = int(sys.argv[1])
def hot(end):
    while time.perf_counter() < end: pass
def rest(end):
    while time.perf_counter() < end: pass
print("ready", flush=True)
while True:
    now = time.perf_counter()
    hot(now + share / 1000)
    rest(now + 0.1)
"""
SECTION = "Functions outside compiles"


def record(folder, share, seconds):
    target = support.spawn([sys.executable, "-c", TARGET, str(share)])
    dynprof = support.Dynprof(folder.parent)
    try:
        result = dynprof.run("--pid", target.pid, "-F", "499", "-d", seconds, "-o", folder)
        assert result.rc == 0, result
    finally:
        dynprof.close()
        target.kill()
    return folder


@pytest.fixture(scope="module")
def pair(require_root_bpf, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pair")
    return record(folder / "a", 10, "3"), record(folder / "b", 80, "2")


def rows(text, title):
    """Of one table: name -> (mark, A, B, difference)."""
    part = text.split(title, 1)[1].split("\n# Name", 1)[0]
    found = {}
    for line in part.splitlines()[1:]:
        match = re.match(r"([ ~]) +([\d.]+) +([\d.]+) +([+-][\d.]+) +\S+ +[\d,]+ -> [\d,]+  (.*)", line)
        if match:
            mark, *numbers, name = match.groups()
            found[name] = (mark, *map(float, numbers))
        elif found and line.startswith("#"):
            break
    return found


def test_the_function_that_got_slower_is_first(dynprof, pair):
    result = dynprof.run("compare", *pair)
    assert result.rc == 0, result
    table = rows(result.out, SECTION)
    name = next(name for name in table if name.startswith("hot "))
    mark, a, b, change = table[name]
    assert mark == " " and b > 3 * a and change > 0, result
    other = next(name for name in table if name.startswith("rest "))
    assert table[other][3] < 0, result
    assert list(table).index(name) < 4, result
    assert max(map(len, result.out.splitlines())) <= 100


def test_a_recording_with_itself_has_no_difference(dynprof, pair):
    result = dynprof.run("compare", pair[0], pair[0])
    assert result.rc == 0, result
    table = rows(result.out, SECTION)
    assert table and all(row[1] == row[2] for row in table.values()), result
    assert all(row[0] == "~" for name, row in table.items()), result


def test_the_page(dynprof, pair, tmp_path):
    page = tmp_path / "page.html"
    result = dynprof.run("compare", *pair, "--html", page)
    assert result.rc == 0 and f"wrote {page}" in result.err, result
    assert "http" not in re.sub(r"http-equiv", "", page.read_text().split('id="data"')[0])
    again = dynprof.run("compare", *pair, "--html", page)
    assert again.rc == 1 and "File exists" in again.err, again
    browser = browsers.Browser(tmp_path)
    try:
        browser.look()
        browser.open(page)
        assert browser.console == [] and browser.requests == [page.as_uri()]
        assert browser.evaluate("window.flameView.isDifference")
        assert browser.evaluate("document.querySelectorAll('#run-functions tbody tr').length") > 2
        browser.type("#flame-search", "hot")
        assert "1 functions match" in browser.evaluate("document.getElementById('flame-status').textContent")
    finally:
        browser.close()


def test_what_is_no_recording(dynprof, pair, tmp_path):
    (tmp_path / "noise").write_bytes(b"hello\n" * 1000)
    for bad in (tmp_path / "missing", tmp_path / "noise", tmp_path):
        for arguments in ((bad, pair[0]), (pair[0], bad)):
            began = time.monotonic()
            result = dynprof.run("compare", *arguments, "--html", tmp_path / "page.html", timeout=30)
            report = dynprof.run("report", bad)
            assert result.rc == report.rc == 1, result
            assert report.err.splitlines()[0] in result.err, (result, report)
            assert not (tmp_path / "page.html").exists(), "an empty page was left behind"
            assert time.monotonic() - began < 20


def test_a_recording_that_was_cut(dynprof, pair, tmp_path):
    content = (pair[0] / "recording.dynprof").read_bytes()
    (tmp_path / "cut").write_bytes(content[: len(content) * 2 // 3])
    result = dynprof.run("compare", tmp_path / "cut", pair[1])
    assert result.rc == 0 and re.search(r"^warning: \S", result.err, re.M), result


@pytest.mark.parametrize("arguments", [(), ("one",), ("a", "b", "--html", "-"), ("a", "b", "c")])
def test_wrong_usage(dynprof, arguments):
    result = dynprof.run("compare", *arguments)
    assert result.rc == 2 and re.search(r"^error: \S", result.err, re.M), result


def test_without_root(dynprof, pair):
    """As the user nobody, on copies that this user may read."""
    with tempfile.TemporaryDirectory(prefix="dynprof-compare-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        copies = []
        for recording in pair:
            copy = folder / f"{recording.name}.dynprof"
            copy.write_bytes((recording / "recording.dynprof").read_bytes())
            copy.chmod(0o644)
            copies.append(copy)
        result = dynprof.run("compare", *copies, user="nobody")
    assert result.rc == 0 and SECTION in result.out, result
