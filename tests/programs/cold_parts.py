"""Runs the parts of CPython's interpreter loop that compilers keep apart from it: the name that a
`from ... import` does not find makes its exception there. Waits for a line, runs for SECONDS of
CPU time."""

import sys
import time

SECONDS = 1.5


def fails_to_import():
    try:
        from os import no_such_name  # noqa: F401
    except ImportError:
        return 1
    return 0


def main():
    print("ready", flush=True)
    sys.stdin.readline()
    end = time.process_time() + SECONDS
    while time.process_time() < end:
        for _ in range(100):
            fails_to_import()
    print("done", flush=True)


main()
