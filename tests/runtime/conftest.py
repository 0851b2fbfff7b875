"""The recording of a cold compile, made once for every test that asks something of it."""

import json
import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import samples
import support
from tmux_terminal import Terminal

sys.path.insert(0, str(support.REPO / "tests" / "matrix"))
import wheels  # noqa: E402

COMPILE_JOB = support.REPO / "tests" / "programs" / "compile_job.py"


@dataclass
class CompileRun:
    directory: Path  # the output directory
    truth: dict  # what the job says it did
    ledger: dict  # compiles.json
    dump: samples.Dump
    done: support.Completed  # of dynprof-bpf
    stolen_s: float  # what the hypervisor took from all CPUs meanwhile


def stolen_seconds():
    """proc(5): the eighth figure of the line "cpu" of /proc/stat, in clock ticks."""
    total = Path("/proc/stat").read_text().splitlines()[0].split()
    return int(total[8]) / os.sysconf("SC_CLK_TCK")


def record_compile_job(folder, python, *arguments):
    """Attaches to compile_job.py before its first compile; it ends by itself, and so do we."""
    target = support.spawn(
        [python, COMPILE_JOB, folder / "truth.json", *arguments],
        timeout=180,
        env={"TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"), "TMPDIR": str(folder)},
    )
    dynprof = support.Dynprof(folder)
    stolen = stolen_seconds()
    try:
        out = folder / "out"
        run = dynprof.start("--pid", target.pid, "-F", 999, "--svg", "-o", out)
        samples.wait_until_sampling(run)
        target.send("go")
        target.wait_for("^done", timeout=600)
        assert target.wait() == 0, target.text
        done = run.wait()
        assert done.rc == 0, done
        return CompileRun(
            directory=out,
            truth=json.loads((folder / "truth.json").read_text()),
            ledger=json.loads((out / "compiles.json").read_text()),
            dump=samples.Dump(out / "recording.dynprof"),
            done=done,
            stolen_s=stolen_seconds() - stolen,
        )
    finally:
        dynprof.close()
        target.kill()


@pytest.fixture(scope="session")
def compile_run(require_root_bpf, venv_python, tmp_path_factory):
    return record_compile_job(tmp_path_factory.mktemp("compile"), venv_python)


@pytest.fixture(scope="session")
def eager_run(require_root_bpf, venv_python, tmp_path_factory):
    """Nothing of torch wrapped, and no Inductor: seconds instead of a minute."""
    folder = tmp_path_factory.mktemp("eager")
    return record_compile_job(folder, venv_python, "--unwrapped", "--backend", "aot_eager")


@dataclass
class NewestTorch:
    python: Path  # a program that becomes a CPython with that torch, and with the Triton that comes with it
    version: str


@pytest.fixture(scope="session")
def newest_torch(require_root_bpf, tmp_path_factory):
    """The newest torch on the newest CPython, as a new user installs them. The wheels (5 GB unpacked) stay in the cache
    directory."""
    requirements = (support.REPO / "tests" / "requirements-newest.txt").read_text()
    version = re.search(r"(?m)^torch==(\S+)", requirements)[1]
    found = [one.path for one in support.unpacked_interpreters() if one.minor == (3, 15)]
    if not found:
        pytest.skip("CPython 3.15 could not be had (scripts/interpreters.sh)")
    cache = Path(os.environ.get("DYNPROF_CACHE", Path.home() / ".cache" / "dynprof-bpf")) / "newest"
    cache.mkdir(parents=True, exist_ok=True)
    try:
        site = wheels.install(cache, "3.15", version)
    except wheels.NotInstalled as why:
        pytest.skip(f"torch {version} for CPython 3.15: {why}")
    python = wheels.python_with(site, found[0], tmp_path_factory.mktemp("newest") / "python")
    return NewestTorch(python, version)


@pytest.fixture(scope="session", params=["venv", "newest"])
def either_python(request):
    """Of the virtual environment, and of the newest torch."""
    newest = request.param == "newest"
    return request.getfixturevalue("newest_torch").python if newest else request.getfixturevalue("venv_python")


@pytest.fixture
def terminal(tmp_path):
    if not shutil.which("tmux"):
        pytest.skip("tmux is not installed")
    opened = []

    def start(columns, rows, **options):
        folder = tmp_path / str(len(opened))
        folder.mkdir()
        opened.append(Terminal(folder, columns, rows, **options))
        return opened[-1]

    yield start
    for one in opened:
        one.close()
