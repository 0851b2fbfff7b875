"""What a job is told, for the jobs beside this file."""

import select
import sys


def lines():
    """Those of stdin. Python code runs while it waits, as in a job that works, so that the library can be loaded."""
    while True:
        while not select.select([0], [], [], 0.01)[0]:
            pass
        line = sys.stdin.readline()
        if not line:
            return
        yield line
