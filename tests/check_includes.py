#!/usr/bin/env python3
"""Data flows one way: checks every #include "…" against the allowed edges, and that it names a file.

Prints one line per offence; exit status 1 when there is one.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GENERATED = re.compile(r"[a-z_0-9]+\.skel\.h|version\.h")

# part -> what it may include: a folder, or a single header.
ALLOWED = {
    "bpf": ("bpf/", "cupti/wire.h"),
    "symbolizer": ("symbolizer/", "bpf/events.h", "cupti/wire.h", "cupti/calls_table.h"),
    "user": ("user/", "symbolizer/", "bpf/", "cupti/wire.h"),
    "cupti": ("cupti/",),
}
SEES_GENERATED = {"user"}
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')


def includes(path):
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        found = INCLUDE.match(line)
        if found:
            yield number, found.group(1)


def offences(root):
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
                elif not (root / name).exists():
                    yield f"{where}: {name} does not exist (includes are relative to the root)"


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT
    found = list(offences(root))
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
