"""Values, containers and attributes read out of real processes by user/target/remote_values, printed
by tests/tools/value_dump.cpp and held against what the process says of itself."""

import json
import subprocess

import pytest

import support

pytestmark = pytest.mark.pythons(last="3.15")

HOLDER = support.REPO / "tests" / "programs" / "value_holder.py"


def dump(pid, *what):
    tool = support.BUILD / "tests" / "value_dump"
    assert tool.exists(), f"{tool} does not exist: run make first"
    done = subprocess.run([tool, str(pid), *map(str, what)], capture_output=True, timeout=60)
    assert done.returncode == 0, (done.returncode, done.stdout[-500:], done.stderr)
    return done.stdout.decode()


def unordered_sets(value):
    if isinstance(value, list):
        return [unordered_sets(item) for item in value]
    if not isinstance(value, dict):
        return value
    value = {name: unordered_sets(inner) for name, inner in value.items()}
    if value.get("type") in ("set", "frozenset") and "items" in value:
        value["items"].sort(key=json.dumps)
    return value


def test_every_kind_of_object_is_read_as_it_is(spawn, interpreter):
    target = spawn([interpreter.path, HOLDER])
    truth = json.loads(target.wait_for("^ready (.*)").group(1))
    found = json.loads(dump(target.pid))
    assert found.keys() == truth.keys()
    for name, expected in truth.items():
        assert unordered_sets(found[name]) == unordered_sets(expected), name


@pytest.mark.parametrize("container", ("deque", "list", "dict"))
def test_a_container_that_changes_is_never_a_mixture(spawn, interpreter, container):
    target = spawn([interpreter.path, HOLDER, "changing"])
    words = dump(target.pid, "steady", container, 3000).split()
    counts = dict(zip(words[::2], map(int, words[1::2]), strict=True))
    assert counts["mixed"] == 0 and counts["whole"] > 100, counts
