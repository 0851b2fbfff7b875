"""What the BPF objects may be attached to. A return probe ends a process that throws a C++ exception, or
switches stacks, below the function with the probe: there is none, in any object."""

import re
import subprocess

import support


def sections(path):
    listing = subprocess.run(["readelf", "-WS", path], check=True, capture_output=True, text=True).stdout
    return re.findall(r"\] (\S+) +PROGBITS", listing)


def test_no_object_has_a_return_probe():
    objects = sorted((support.BUILD / "bpf").glob("*.bpf.o"))
    assert len(objects) >= 6, objects
    found = {path.name: sections(path) for path in objects}
    assert "uprobe" in found["uprobes.bpf.o"]  # this finds sections
    returns = [(name, part) for name, parts in found.items() for part in parts if "ret" in part]
    assert not returns


def test_no_source_asks_for_one():
    """libbpf makes one of any program where it is told to."""
    asks = re.compile(r"retprobe\s*=\s*true|uretprobe|attach_uprobe\(")
    found = [
        f"{path.name}: {line.strip()}"
        for folder in ("user", "bpf")
        for path in sorted((support.REPO / folder).rglob("*.[ch]*"))
        for line in path.read_text().splitlines()
        if asks.search(line) and not line.strip().startswith(("*", "/*", "//"))
    ]
    assert not found
