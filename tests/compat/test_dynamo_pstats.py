"""The profiles of the user functions Dynamo traced load where the sampled ones do (test_pstats.py): pstats
of every CPython found, snakeviz' loader, gprof2dot with dot, and flameprof."""

import json
import shutil
import subprocess

import pytest

import test_pstats as viewers

TRAIN = "/home/me/train.py"


@pytest.fixture(scope="module")
def profiles(tmp_path_factory):
    directory = tmp_path_factory.mktemp("dynamo")
    subprocess.run([viewers.BUILD / "tests" / "dynamo_dump", "-", directory], check=True, timeout=120)
    files = sorted(directory.glob("*.dynamo.profile"))
    assert [file.name[: -len(".dynamo.profile")] for file in files] == [
        "_compile_inner_0_0",
        "_compile_inner_1_0",
    ]
    return files


@pytest.mark.parametrize("version,python", viewers.interpreters())
def test_every_pstats_loads_and_prints(profiles, version, python):
    result = subprocess.run(
        [python, "-c", viewers.LOAD, *map(str, profiles)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    loaded = list(json.loads(result.stdout).values())
    assert [row[:3] for row in loaded] == [
        [pytest.approx(0.011), 4, 7],
        [pytest.approx(0.011), 23, 23],
    ]
    assert all(printed > 200 for *_, printed in loaded)


def test_numbers_and_callers(profiles):
    stats = viewers.load(profiles[0])
    step, walk, inner = (TRAIN, 20, "step"), (TRAIN, 50, "walk"), (TRAIN, 22, "<lambda>")
    assert stats.keys() == {step, walk, inner}
    assert stats[step] == (1, 1, pytest.approx(0.003), pytest.approx(0.010), {})
    # Each level of the recursion has its whole time over the edge it was called by.
    assert stats[walk] == (
        2,
        5,
        pytest.approx(0.005),
        pytest.approx(0.008),
        {
            walk: (3, 0, pytest.approx(0.003), pytest.approx(0.015)),
            step: (1, 1, pytest.approx(0.001), pytest.approx(0.007)),
            inner: (1, 1, pytest.approx(0.001), pytest.approx(0.001)),
        },
    )
    # The call of the lambda that raised does not count, though it is walk's caller.
    assert stats[inner][:2] == (1, 1) and stats[inner][4].keys() == {walk}


def test_every_caller_has_an_entry(profiles):
    for path in profiles:
        stats = viewers.load(path)
        assert all(caller in stats for row in stats.values() for caller in row[4])
        assert any(not row[4] for row in stats.values()), "a root"


def test_hostile_names_are_kept_whole(profiles):
    names = {key[2] for key in viewers.load(profiles[1])}
    assert {"new\nline", "a\x1b[31mred", "../../etc/passwd", "x" * 10000, "\\udc80surrogate",
            "\\xff\\xfe not utf-8", "", "<stale code>", "\u202eoverride"} <= names


def test_snakeviz_loads(profiles):
    python = viewers.venv_program("python3")
    subprocess.run([python, "-c", viewers.SNAKEVIZ, *map(str, profiles)], check=True, timeout=120)


def test_gprof2dot_and_dot_draw_it(profiles):
    program = viewers.venv_program("gprof2dot")
    for path in profiles:
        graph = subprocess.run(
            [program, "-f", "pstats", "--node-label=total-time-percentage",
             "--node-label=self-time-percentage", "--node-label=total-time", path],
            capture_output=True, timeout=120,
        )
        assert graph.returncode == 0, (path, graph.stderr.decode())
        assert b"->" in graph.stdout
        if shutil.which("dot"):
            svg = subprocess.run(["dot", "-Tsvg"], input=graph.stdout, capture_output=True,
                                 timeout=120)
            assert svg.returncode == 0, (path, svg.stderr.decode())
            assert b"step" in svg.stdout and b"</svg>" in svg.stdout


def test_flameprof_draws_it(profiles):
    viewers.venv_program("flameprof")
    python = viewers.venv_program("python3")
    for path in profiles:
        result = subprocess.run([python, "-m", "flameprof", path], capture_output=True, timeout=120)
        assert result.returncode == 0, (path, result.stderr.decode())
        assert b"</svg>" in result.stdout
