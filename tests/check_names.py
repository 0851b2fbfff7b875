#!/usr/bin/env python3
"""No two headers define classes of one name in one namespace: a program with both has undefined behaviour, which
neither the compiler nor the linker reports. Prints one line per offence; exit status 1 when there is one.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("user", "symbolizer", "tests/unit")
NAMESPACE = re.compile(r"^namespace ([\w:]+) \{", re.M)
CLASS = re.compile(r"^(?:struct|class|union|enum class) (\w+)[^;{]*\{", re.M)  # indented ones are members of others


def main():
    where, offences = {}, 0
    for folder in FOLDERS:
        for header in sorted((ROOT / folder).rglob("*.h")):
            text = header.read_text()
            namespaces = [(match.start(), match[1]) for match in NAMESPACE.finditer(text)]
            for match in CLASS.finditer(text):
                inside = next((name for start, name in reversed(namespaces) if start < match.start()), "")
                other = where.setdefault((inside, match[1]), header)
                if other != header:
                    offences += 1
                    print(f"{header.relative_to(ROOT)}: {inside}::{match[1]} is also in {other.relative_to(ROOT)}")
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())
