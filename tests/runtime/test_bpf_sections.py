"""What the BPF objects may be attached to. A return probe ends a process that throws a C++ exception, or
switches stacks, below the function with the probe: there is none, in any object."""

import re
import subprocess

import pytest

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


# How a program for entries becomes one for returns: by an option of libbpf, by a section that is named at run time,
# and by a flag of a link, which the kernel takes as a number too.
ASKS = re.compile(r"retprobe\s*=(?!\s*false\b)|uretprobe|attach_uprobe\(|UPROBE_MULTI_RETURN")
ASKS_BY_FLAGS = re.compile(r"\bflags\s*=(?!\s*0\b)")
MAKES_LINKS = re.compile(r"BPF_LINK_CREATE|bpf_link_create")


def lines_that_ask(text):
    code = [line.strip() for line in text.splitlines()]
    code = [line for line in code if not line.startswith(("*", "/*", "//"))]
    flags = any(MAKES_LINKS.search(line) for line in code)
    return [line for line in code if ASKS.search(line) or (flags and ASKS_BY_FLAGS.search(line))]


def test_no_source_asks_for_one():
    """libbpf and the kernel make one of any program where they are told to."""
    paths = [path for folder in ("user", "bpf") for path in sorted((support.REPO / folder).rglob("*.[ch]*"))]
    texts = {path.name: path.read_text() for path in paths}
    assert any(MAKES_LINKS.search(text) for text in texts.values())  # this finds what makes links
    assert not [f"{name}: {line}" for name, text in texts.items() for line in lines_that_ask(text)]


@pytest.mark.parametrize(
    "code",
    (
        "LIBBPF_OPTS(bpf_uprobe_opts, options, .retprobe = true);",
        "options.retprobe=true;",
        "options.retprobe = is_end;",
        "bpf_program__attach_uprobe(program, true, pid, path, offset);",
        'SEC("uretprobe")',
        'if (section == "uretprobe.multi") attach();',
        "options.flags = BPF_F_UPROBE_MULTI_RETURN;",
        "std::uint32_t type = kUprobeMulti, flags = 1;\n::syscall(SYS_bpf, BPF_LINK_CREATE, &create, sizeof create);",
        "options.uprobe_multi.flags = flags;\nbpf_link_create(program, 0, kUprobeMulti, &options);",
    ),
)
def test_a_request_is_found(code):
    assert lines_that_ask(code)
