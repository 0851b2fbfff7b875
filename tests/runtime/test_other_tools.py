"""docs/reference/other-tools.md: each of its commands works, and a recording has the files and titles that it names."""

import gzip
import itertools
import json
import re
import shlex
import subprocess

import pytest

import samples
import support

pytestmark = pytest.mark.root_bpf

JOB = support.REPO / "tests" / "programs" / "whole_job.py"
PAGE = support.REPO / "docs" / "reference" / "other-tools.md"
FILE = re.compile(r"[\w/*]+(\.\w+)*\.(md|py|pyc|json|gz|txt|svg|profile|folded)|generated/0_0/")


def table_rows():
    """(what another tool shows, where it is here, command) of each row."""
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and cells[1] != "here":
            yield cells + [""] * (3 - len(cells))


def quoted(column, mark):
    return sorted({text for row in table_rows() for text in re.findall(f"{mark}([^{mark}]+){mark}", row[column])})


COMMANDS = quoted(2, "`")
FILES = [text for text in quoted(1, "`") if FILE.fullmatch(text)]
TITLES = [text for text in quoted(1, '"') if "`" not in text]


@pytest.fixture(scope="module")
def out(require_root_bpf, venv_python, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    target = support.spawn([venv_python, JOB], timeout=300, env={
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"), "TMPDIR": str(folder), "TORCHINDUCTOR_VEC_ISA_OK": "1"})
    dynprof = support.Dynprof(folder)
    try:
        run = samples.start_recording(dynprof, folder / "out", "-p", target.pid, "--record-functions", "--svg",
                                      "--decompiler", venv_python, hertz=199)
        target.send("go")
        target.wait_for("^done", timeout=300)
        target.send("end")
        done = run.wait(timeout=300)
        assert done.rc == 0, done
    finally:
        dynprof.close()
        target.kill()
    return folder / "out"


def test_every_row_has_a_command_or_says_that_there_is_nothing():
    assert len(COMMANDS) >= 15 and len(FILES) >= 15 and len(TITLES) >= 4
    for row in table_rows():
        assert re.search(r"`[^`]+ [^`]+`|^as above$", row[2]) or (row[1].startswith("not shown: ") and not row[2]), row


@pytest.mark.parametrize("command", [text for text in COMMANDS if text.startswith("dynprof-bpf record ")])
def test_options_of_record_exist(command, tmp_path):
    ended = subprocess.Popen(["true"])
    ended.wait()
    words = [{"PID": str(ended.pid), "PYTHON": "auto"}.get(word, word) for word in shlex.split(command)[1:]]
    done = subprocess.run([support.BINARY, *words], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and f"there is no process {ended.pid}" in done.stderr, done.stderr


@pytest.mark.parametrize("command", [text for text in COMMANDS if not text.startswith("dynprof-bpf record ")])
def test_commands_work(out, command, tmp_path):
    program, *words = shlex.split(command)
    if program != "dynprof-bpf":  # a tool that may not be installed: it gets a file that is there
        [file] = [word.replace("DIR", str(out)) for word in words]
        assert subprocess.run(["test", "-s", file]).returncode == 0, file
        return
    new = {"NAME": "step", "DIR": str(out), "10s": "0s", "20s": "500s"}
    made = [tmp_path / word for last, word in itertools.pairwise(words) if last == "-o"]
    words = [new.get(word, word) for word in words]
    done = subprocess.run([support.BINARY, *words], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    if words[0] == "report":
        assert "No samples." not in done.stdout and len(done.stdout.splitlines()) > 10
    else:
        files = [file for path in made for file in (path.iterdir() if path.is_dir() else [path])]
        assert files and all(file.stat().st_size > 20 for file in files)
        if "chrome" in words:
            slices = [event for file in files for event in json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
                      if event["ph"] == "X"]
            assert len(slices) > 100


@pytest.mark.parametrize("name", FILES)
def test_files_are_there(out, name):
    found = [path for folder in (out, out / "generated" / "0_0") for path in folder.glob(name)]
    assert found, sorted(path.name for path in (out / "generated" / "0_0").iterdir())


@pytest.mark.parametrize("title", TITLES)
def test_titles_are_there(out, title):
    texts = [out / "report.txt", out / "generated" / "0_0" / "index.md", *(out / "compiles").glob("*.dynamo.txt")]
    trace = gzip.decompress((out / "trace.json.gz").read_bytes()).decode()
    assert any(title.lower() in text.lower() for text in [*(path.read_text() for path in texts), trace])
