"""How fast a recording becomes each output: one million made-up samples (recording.cpp), no root.

    bench_export.py [SAMPLES]

CPU seconds and peak memory are those of the dynprof-bpf process; a rate is samples per CPU second.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(REPO / "tests"))

import support  # noqa: E402

FORMATS = ("pstats", "chrome", "folded", "speedscope", "perf-script", "html")


def measure(argv):
    """(wall s, CPU s, peak RSS in MB) of a command that must succeed."""
    began = time.monotonic()
    with tempfile.TemporaryFile() as said, open(os.devnull, "wb") as null:
        process = subprocess.Popen([str(a) for a in argv], stdout=null, stderr=said)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            said.seek(0)
            sys.exit(f"error: {' '.join(map(str, argv))}: {said.read().decode(errors='replace')}")
    return time.monotonic() - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main():
    samples = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        recording = folder / "recording.dynprof"
        writer = support.BUILD / "bench" / "recording"
        subprocess.run([writer, "--write", recording, str(samples)], check=True)
        size_mb = recording.stat().st_size / 2**20
        print(f"{samples} samples, recording of {size_mb:.1f} MB\n")
        print("| output | wall s | CPU s | M samples/s | peak MB | of the recording |")
        print("|---|---|---|---|---|---|")
        commands = {"report": ["report", folder]}
        for form in FORMATS:
            commands[form] = ["export", folder, "-f", form, "-o", folder / f"out.{form}"]
        total = 0.0
        for what, arguments in commands.items():
            wall, cpu, peak = measure([support.BINARY, *arguments])
            total += cpu
            print(
                f"| {what} | {wall:.2f} | {cpu:.2f} | {samples / cpu / 1e6:.2f} | {peak:.0f}"
                f" | {peak / size_mb:.1f} x |",
                flush=True,
            )
        print(f"| all of them | | {total:.2f} | {samples / total / 1e6:.2f} | | |")


if __name__ == "__main__":
    main()
