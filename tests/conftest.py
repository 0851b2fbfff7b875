"""Fixtures shared by tests/compat and tests/runtime. See tests/support.py for what they return.

  dynprof              dynprof.run("report", dir) / dynprof.start("--pid", n); killed at teardown
  spawn                spawn([python, script], ready="ready"); killed at teardown
  interpreter          the test runs once per CPython found, 3.10-3.13 unless marked
                       @pytest.mark.pythons("3.8", "3.13"); @pytest.mark.pythons(linkage="static");
                       3.14 and later only where a mark asks for them (support.unpacked_interpreters)
  wanted_interpreters  those that `interpreter` would be, in a list
  interpreters         all CPythons found, 3.8 and later
  venv_python          path of the venv's python (torch 2.13.0, snakeviz, gprof2dot, flameprof)
  require_root_bpf     skips, naming the reason, where BPF programs cannot be loaded
                       (or mark the test or module: pytestmark = pytest.mark.root_bpf)

With CI=true a machine that cannot run a test fails it: a skipped test proves nothing.
"""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import support  # noqa: E402


def pytest_configure(config):
    config.addinivalue_line("markers", "pythons(first, last, linkage): which CPythons a test wants")
    config.addinivalue_line("markers", "root_bpf: loads BPF programs")


def unavailable(reason):
    if support.IN_CI:
        pytest.fail(f"not possible here: {reason}", pytrace=False)
    pytest.skip(reason)


def _wanted_interpreters(marker):
    def wants(first="3.10", last="3.13", linkage=None):
        low, high = (tuple(map(int, text.split("."))) for text in (first, last))
        return [
            found
            for found in support.interpreters() + support.unpacked_interpreters()
            if low <= found.minor <= high
            and (linkage is None or found.shared == (linkage == "shared"))
        ]

    return wants(*marker.args, **marker.kwargs) if marker else wants()


def pytest_generate_tests(metafunc):
    if "interpreter" in metafunc.fixturenames:
        found = _wanted_interpreters(metafunc.definition.get_closest_marker("pythons"))
        # Module scope, so that a recording can be made once per interpreter and looked at by many.
        metafunc.parametrize("interpreter", found, ids=str, scope="module")


@pytest.fixture(autouse=True)
def _root_bpf_marker(request):
    if request.node.get_closest_marker("root_bpf"):
        request.getfixturevalue("require_root_bpf")


@pytest.fixture(scope="session")
def require_root_bpf():
    reason = support.why_no_bpf()
    if reason:
        unavailable(reason)


@pytest.fixture(scope="session")
def repo():
    return support.REPO


@pytest.fixture(scope="session")
def build():
    return support.BUILD


@pytest.fixture
def wanted_interpreters(request):
    return _wanted_interpreters(request.node.get_closest_marker("pythons"))


@pytest.fixture(scope="session")
def interpreters():
    found = support.interpreters()
    if not found:
        unavailable("no CPython 3.8 or later found")
    return found


@pytest.fixture(scope="session")
def venv_python():
    found = support.venv_python()
    if found is None:
        unavailable(f"no venv in {support.VENV}: run make setup")
    return found.path


@pytest.fixture
def dynprof(tmp_path_factory):
    runner = support.Dynprof(tmp_path_factory.mktemp("dynprof"))
    yield runner
    runner.close()


@pytest.fixture
def spawn():
    started = []

    def start(argv, **options):
        target = support.spawn(argv, **options)
        started.append(target)
        return target

    yield start
    for target in started:
        target.kill()
