"""Our unwind tables against libdw: the threads of a busy torch process, stopped at random moments.

    compare_libdw.py [--stops N] [--seconds S]

Exit status 1 if any stack differs.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(REPO / "tests"))

import support  # noqa: E402


def compare(argv, stops, seconds, ready_timeout=120):
    """(counts, what differs as text) of a program that prints `ready`."""
    target = support.spawn(argv, timeout=ready_timeout)
    try:
        tool = support.BUILD / "tests" / "unwind_compare"
        command = [tool, str(target.pid), str(stops), str(seconds)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60 + 20 * seconds)
    finally:
        target.kill()
    assert done.returncode == 0, done.stderr
    *differing, last = done.stdout.splitlines()
    return json.loads(last), "\n".join(differing)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stops", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=30)
    arguments = parser.parse_args()
    program = REPO / "tests" / "programs" / "busy_torch.py"
    python = support.venv_python()
    if python is None:
        sys.exit(f"no venv with torch in {support.VENV}")
    counts, differing = compare([python.path, program], arguments.stops, arguments.seconds)
    print(differing)
    print(", ".join(f"{name} {count}" for name, count in counts.items()))
    return 1 if counts["differ"] or counts["stops"] < arguments.stops else 0


if __name__ == "__main__":
    sys.exit(main())
