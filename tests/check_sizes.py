#!/usr/bin/env python3
"""One file, one idea: no C or C++ source over 450 lines, no script over 600. Tables (data, not logic) are
exempt by name."""

import sys

import tree_check

FOLDERS = ("bpf", "user", "symbolizer", "cupti", "tests", "scripts", "demo", "mk")
LIMITS = {".h": 450, ".c": 450, ".cpp": 450, ".py": 600, ".sh": 600, ".mk": 600}


def is_table(path):
    return path.stem.endswith(("_table", "_tables"))


def offences(root):
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            limit = LIMITS.get(path.suffix)
            if limit and not is_table(path):
                lines = path.read_text(encoding="utf-8", errors="replace").count("\n")
                if lines > limit:
                    yield f"{path.relative_to(root)}: {lines} lines, at most {limit}"


if __name__ == "__main__":
    sys.exit(tree_check.main(offences))
