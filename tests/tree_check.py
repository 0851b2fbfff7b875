"""What the checks of the sources have in common: a line for each offence, and exit status 1 when there is one."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main(offences):
    """Of the tree below the first argument, else of this one."""
    root = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT
    found = list(offences(root))
    for line in found:
        print(line)
    return 1 if found else 0
