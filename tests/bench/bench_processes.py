"""Short-lived processes by the thousand: what is lost, and what following them costs us.

    bench_processes.py [--seconds S] [--rate N]

A program forks RATE children a second for S seconds (tests/programs/storm.c), each of which ends at once, while
`record` follows all of them. Printed: what the recording knows of them, every counter of lost things, our
CPU time and memory while it went on, and with the report at the end.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPO = HERE.parent.parent
sys.path.insert(0, str(REPO / "tests"))

import support  # noqa: E402
from own_cost import cpu_seconds, resident_mb, wait_for_end  # noqa: E402

# "go" is for the storm too.
RUNNER = """
import os, subprocess, sys
print("ready", os.getpid(), flush=True)
sys.stdin.readline()
sys.exit(subprocess.run(sys.argv[1:], input=b"go").returncode)
"""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--rate", type=int, default=2000)
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("error: needs root\nhint: sudo make bench")
    count = options.seconds * options.rate
    storm = support.BUILD / "tests" / "programs" / "storm"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        argv = [sys.executable, "-c", RUNNER, storm, str(count), str(options.rate)]
        target = support.spawn(argv, timeout=120)
        out = folder / "out"
        run = support.Running([support.BINARY, "record", "-F", 99, "-o", out, "-p", target.pid], folder)
        try:
            run.wait_for_err(r"(?m)^Sampling ")
            cpu, began = cpu_seconds(run.pid), time.monotonic()
            target.send("go")
            said = target.wait_for(r"^forked .*", timeout=20 * options.seconds)[0]
            cpu, wall = cpu_seconds(run.pid) - cpu, time.monotonic() - began
            rss = resident_mb(run.pid, "VmHWM")
            target.wait(120)
            ended = wait_for_end(run)
        finally:
            target.kill()
            run.kill()
        ledger = json.loads((out / "compiles.json").read_text())
        size = (out / "recording.dynprof").stat().st_size
    del run
    rows = ledger["processes"]["others"]
    print(f"{said}, in {wall:.1f} s")
    print(f"processes in the recording: {ledger['processes']['count'] - 1:,} of {count:,}; "
          f"exit code known of {sum(row['exit_code'] == 0 for row in rows):,} of the {len(rows):,} listed")
    print(f"lost: {ledger['lost']}")
    print(f"recording: {size:,} bytes, {size / count:.0f} a process")
    print(f"our CPU while it went on: {100 * cpu / wall:.1f} % of a core; peak RSS {rss:.0f} MB")
    print(f"with the report: {ended.cpu_s:.1f} s CPU in all; peak RSS {ended.peak_mb:.0f} MB")


if __name__ == "__main__":
    main()
