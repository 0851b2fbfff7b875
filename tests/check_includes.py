#!/usr/bin/env python3
"""Data flows one way: checks every #include "…" against the allowed edges, and that it names a file.

Prints one line per offence; exit status 1 when there is one.
"""

import re
import sys

import tree_check

GENERATED = re.compile(r"[a-z_0-9]+\.skel\.h|version\.h")

# part -> what it may include: a folder, or a single header.
ALLOWED = {
    "bpf": ("bpf/", "cupti/wire.h"),
    "symbolizer": ("symbolizer/", "bpf/events.h", "cupti/wire.h", "cupti/calls_table.h"),
    "user": ("user/", "symbolizer/", "bpf/", "cupti/wire.h"),
    "cupti": ("cupti/",),
}
SEES_GENERATED = {"user"}
# The same inside a part: component -> the components it may include. Each comes after those it
# includes: so there is no cycle.
COMPONENTS = {
    "symbolizer": {
        "base": (),
        "symbols": ("base",),
        "recording": ("base", "symbols"),
        "python": (),
        "attribution": ("base", "python", "recording"),
        "profile": ("attribution", "base", "python", "recording"),
        "report": ("attribution", "base", "profile", "recording", "symbols"),
        "export": ("attribution", "base", "profile", "python", "recording", "report", "symbols"),
        "compare": ("attribution", "base", "export", "profile", "recording", "report", "symbols"),
    },
    "user": {
        "privileges": (),
        "target": ("privileges",),
        "preflight": ("target",),
        "unwind_tables": ("target",),
        "symbols": ("target", "unwind_tables"),
        "history": ("target",),
        "generated": ("target",),
        "live": ("preflight", "target"),
        "kernel": ("preflight", "target"),
        "stacks": ("kernel", "preflight", "symbols", "target", "unwind_tables"),
        "torch": ("generated", "history", "kernel", "live", "preflight", "target"),
        "process": ("history", "kernel", "stacks", "target", "torch"),
        "waits": ("kernel", "process", "target"),
        "inject": ("kernel", "target"),
        "gpu": ("inject", "kernel", "process", "target"),
        "session": ("gpu", "kernel", "preflight", "process", "stacks", "target", "waits"),
        "doctor": ("gpu", "inject", "kernel", "preflight", "target"),
        "top": ("history", "live", "preflight", "target"),
        "functions": ("kernel", "preflight", "process", "session", "target", "top", "waits"),
        "cli": (
            *("doctor", "functions", "gpu", "history", "kernel", "live", "preflight", "privileges", "session"),
            *("symbols", "target", "top"),
        ),
    },
}
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')


def includes(path):
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        found = INCLUDE.match(line)
        if found:
            yield number, found.group(1)


def component_offence(part, path, name):
    """Why the component of a file may not include this header of the same part; None: it may."""
    own = COMPONENTS.get(part)
    if own is None or len(path.parts) < 3 or name.count("/") < 2 or not name.startswith(part + "/"):
        return None
    here, there = path.parts[1], name.split("/")[1]
    if here not in own:
        return f"{part}/{here} is no component: tests/check_includes.py lists them"
    if there != here and there not in own[here]:
        return f"{part}/{here} may not include {name} (allowed: {', '.join(own[here]) or 'none'})"
    return None


def cycles():
    for part, components in COMPONENTS.items():
        known = set()  # components come after those they include
        for component, included in components.items():
            for other in included:
                if other not in known:
                    yield f"tests/check_includes.py: {part}/{component} comes before {other}, which it includes"
            known.add(component)


def offences(root):
    yield from cycles()
    for part, allowed in ALLOWED.items():
        for path in sorted((root / part).rglob("*")):
            if path.suffix not in (".h", ".c", ".cpp"):
                continue
            for number, name in includes(path):
                where = f"{path.relative_to(root)}:{number}"
                if GENERATED.fullmatch(name):
                    if part not in SEES_GENERATED:
                        yield f"{where}: {part}/ may not use the generated {name}"
                elif not any(name.startswith(a) if a.endswith("/") else name == a for a in allowed):
                    yield f"{where}: {part}/ may not include {name} (allowed: {', '.join(allowed)})"
                elif reason := component_offence(part, path.relative_to(root), name):
                    yield f"{where}: {reason}"
                elif not (root / name).exists():
                    yield f"{where}: {name} does not exist (includes are relative to the root)"


if __name__ == "__main__":
    sys.exit(tree_check.main(offences))
