"""What follows the end of a recording, by the clock: how long until the summary and the report are printed and until
all files are written, the CPU time of dynprof-bpf from its start, and how large the files are. Root.

    bench_after_recording.py [--rounds N] [--seconds S] [-F 99] [--job demo|encoder|waits]

In each round two recordings: of a job as a whole, until it ends, and of S seconds (60) from its start, ended by
SIGINT. The job is the demo (demo/train.py) or an encoder of BERT's size (encoder_training.py), with a cold cache, or a
process whose child waits some 100,000 times a second (tests/programs/ping_pong.c), which has no end of its own.
"Summary" is the moment its last line was read from a pipe, "files" the end of dynprof-bpf.
"""

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(REPO / "tests"))

import support  # noqa: E402


def files_under(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


def read_until_summary(pipe):
    """When the title and the entries of the summary have been read: they end with a line that is only "#"."""
    for line in pipe:
        if line.startswith(b"#") and len(line.strip()) == 1:
            return time.monotonic()
    sys.exit("error: no summary was printed")


def end_of(recorder, out, began):
    summary = read_until_summary(recorder.stdout)
    for _ in recorder.stdout:
        pass
    report = time.monotonic()
    _, status, usage = os.wait4(recorder.pid, 0)
    recorder.returncode = os.waitstatus_to_exitcode(status)
    files = time.monotonic()
    if recorder.returncode:
        sys.exit(f"error: dynprof-bpf ended with {recorder.returncode}")
    size = sum(path.stat().st_size for path in files_under(out))
    return {
        "summary s": summary - began,
        "report s": report - began,
        "files s": files - began,
        "CPU s": usage.ru_utime + usage.ru_stime,
        "MB": size / 1e6,
        "files": len(files_under(out)),
    }


JOBS = {
    "demo": ([REPO / "demo" / "train.py"], "loading data"),
    "encoder": ([REPO / "tests" / "bench" / "encoder_training.py"], "ready"),
    "waits": (
        [REPO / "tests" / "programs" / "ping_pong_parent.py", support.BUILD / "tests" / "programs" / "ping_pong"],
        "ready",
    ),
}
ENDLESS = {"waits"}


def round_of(folder, seconds, job_name, frequency):
    """`seconds` None: until the job has ended."""
    argv, ready = JOBS[job_name]
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"), "TMPDIR": str(folder)}
    job = support.spawn([support.venv_python().path, *argv], ready=ready, timeout=180, env=environment)
    out = folder / "out"
    try:
        with open(folder / "progress.txt", "w+b") as progress:
            recorder = subprocess.Popen(
                [support.BINARY, "--pid", str(job.pid), "-F", str(frequency), "-o", out],
                stdout=subprocess.PIPE, stderr=progress,
            )
            if seconds is None:
                job.wait(timeout=1200)
                began = time.monotonic()
            else:
                while b"Sampling" not in (folder / "progress.txt").read_bytes():
                    time.sleep(0.05)
                time.sleep(seconds)
                if recorder.poll() is not None:
                    sys.exit(f"error: the job ended within {seconds:.0f} s\nhint: --seconds {seconds / 2:.0f}")
                recorder.send_signal(signal.SIGINT)
                began = time.monotonic()
            return end_of(recorder, out, began)
    finally:
        job.kill()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("-F", "--frequency", type=int, default=99)
    parser.add_argument("--job", choices=tuple(JOBS), default="demo")
    arguments = parser.parse_args()
    job = arguments.job
    kinds = {f"{arguments.seconds:.0f} s of the {job}": arguments.seconds}
    if job not in ENDLESS:
        kinds[f"the whole {job}"] = None
    print("| recording | round | summary s | report s | files s | CPU s | MB | files | load |")
    print("|---|---|---|---|---|---|---|---|---|")
    for what, seconds in kinds.items():
        found = []
        for number in range(1, arguments.rounds + 1):
            with tempfile.TemporaryDirectory() as name:
                found.append(round_of(Path(name), seconds, job, arguments.frequency))
            shown = " | ".join(f"{value:.2f}" for value in found[-1].values())
            print(f"| {what} | {number} | {shown} | {os.getloadavg()[0]:.1f} |", flush=True)
        medians = {key: statistics.median(one[key] for one in found) for key in found[0]}
        print(f"| {what} | median | " + " | ".join(f"{value:.2f}" for value in medians.values()) + " | |", flush=True)


if __name__ == "__main__":
    main()
