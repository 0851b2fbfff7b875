#!/usr/bin/env python3
"""No two headers define classes of one name in one namespace: a program with both has undefined behaviour, which
neither the compiler nor the linker reports. Prints one line per offence; exit status 1 when there is one.
"""

import re
import sys

import tree_check

FOLDERS = ("user", "symbolizer", "tests/unit")
NAMESPACE = re.compile(r"^namespace ([\w:]+) \{", re.M)
CLASS = re.compile(r"^(?:struct|class|union|enum class) (\w+)[^;{]*\{", re.M)  # indented ones are members of others


def offences(root):
    where = {}
    for folder in FOLDERS:
        for header in sorted((root / folder).rglob("*.h")):
            text = header.read_text(encoding="utf-8")
            namespaces = [(match.start(), match[1]) for match in NAMESPACE.finditer(text)]
            for match in CLASS.finditer(text):
                inside = next((name for start, name in reversed(namespaces) if start < match.start()), "")
                other = where.setdefault((inside, match[1]), header)
                if other != header:
                    yield f"{header.relative_to(root)}: {inside}::{match[1]} is also in {other.relative_to(root)}"


if __name__ == "__main__":
    sys.exit(tree_check.main(offences))
