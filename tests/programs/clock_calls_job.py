"""Calls time.time_ns() as often as it is told, in a process that has a torch (of fake_torch). Prints `ready`; for each
line with a number it makes so many calls, one right after the other, and prints `called <number>`."""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "fake_torch"))

import torch  # noqa: E402,F401
from torch._dynamo import utils  # noqa: E402,F401

print("ready", flush=True)
for line in sys.stdin:
    for _ in range(int(line)):
        time.time_ns()
    print(f"called {int(line)}", flush=True)
