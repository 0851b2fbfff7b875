"""CPython's own JIT (3.14 and 3.15, PYTHON_JIT=1): Python frames as without it, its code as [jit]."""

import re

import pytest

import samples
import support

pytestmark = [pytest.mark.root_bpf, pytest.mark.pythons("3.14", "3.15")]

PROGRAM = """
import sys

def leaf(count):
    total = 0
    for i in range(count):
        total += i * i % 7
    return total

def middle(count):
    for i in range(10):
        leaf(count)

def outer():
    while True:
        middle(20000)

print("jit", sys._jit.is_enabled(), flush=True)
outer()
"""
LINES_OF_LEAF = {6, 7, 8}


def test_stacks_of_code_that_was_compiled(interpreter, dynprof, tmp_path):
    (tmp_path / "loop.py").write_text(PROGRAM)
    target = support.spawn([interpreter.path, tmp_path / "loop.py"], env={"PYTHON_JIT": "1"}, ready=None)
    try:
        if target.wait_for(r"^jit (\w+)$", timeout=30).group(1) != "True":
            pytest.skip("this CPython was built without its JIT")
        out = tmp_path / "out"
        done = dynprof.run("--pid", target.pid, "-F", "999", "-d", "2", "-o", out)
        assert done.rc == 0, done
    finally:
        target.kill()
    dump = samples.Dump(out / "recording.dynprof")
    taken = dump.of_pid(target.pid)
    assert len(taken) > 500
    wrong = []
    for sample in taken:
        stack = [(frame.function, frame.line) for frame in dump.stack(sample.stack)]
        names = [name for name, _ in stack]
        right = names in (["<module>", "outer", "middle"], ["<module>", "outer", "middle", "leaf"])
        if not right or (names[-1] == "leaf" and stack[-1][1] not in LINES_OF_LEAF):
            wrong.append(stack)
    # A frame is made and left in several steps.
    assert len(wrong) <= 0.002 * len(taken), wrong[:5]
    folded = tmp_path / "folded"
    assert dynprof.run("export", out, "-f", "folded", "-o", folded).rc == 0
    counts = {"jit": 0, "all": 0}
    for line in folded.read_text().splitlines():
        stack, count = line.rsplit(" ", 1)
        counts["all"] += int(count)
        counts["jit"] += int(count) if re.search(r";\[jit\](;|$)", stack) else 0
    assert counts["jit"] > 0.5 * counts["all"], counts
