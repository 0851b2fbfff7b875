"""Runs tests/tools/generated_dump.cpp on a process and looks at its answer."""

import json
import subprocess

import support


class Found:
    """generated_dump's answer."""

    def __init__(self, pid, *options):
        tool = support.BUILD / "tests" / "generated_dump"
        assert tool.exists(), f"{tool} does not exist: run make first"
        done = subprocess.run([tool, str(pid), *map(str, options)], capture_output=True, timeout=60)
        assert done.returncode == 0, (done.returncode, done.stderr)
        answer = json.loads(done.stdout)
        self.files = answer["files"]
        self.missing = answer["missing"]
        self.seconds = answer["seconds"]

    def all(self, kind=None, trace_id=None, direction=None):
        return [
            file
            for file in self.files
            if kind in (None, file["kind"])
            and trace_id in (None, file["trace_id"])
            and direction in (None, file["direction"])
        ]

    def one(self, kind, trace_id, direction=None):
        found = self.all(kind, trace_id, direction)
        assert len(found) == 1, (kind, trace_id, direction, [f["name"] for f in found])
        return found[0]

    def contents(self, kind, trace_id):
        return {file["name"]: file["content"] for file in self.all(kind, trace_id)}


def listed(content):
    """(offset, opcode, argument, meaning) of each line of a listing."""
    rows = []
    for line in content.splitlines():
        if line.startswith("#") or not line:
            continue
        name, _, rest = line[14:].partition(" ")
        argument, _, meaning = rest.strip().partition("  ")
        rows.append((int(line[7:13]), name, int(argument or 0), meaning or None))
    return rows


def assert_same_instructions(content, truth):
    rows = listed(content)
    assert [row[:3] for row in rows] == [tuple(row[:3]) for row in truth]
    for row, (_, _, _, meaning) in zip(rows, truth, strict=True):
        if meaning is not None:
            assert row[3] is not None and row[3].strip("'") == meaning, (row, meaning)
