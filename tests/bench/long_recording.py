"""What grows with the time of a recording. Not part of `make bench`: it takes an hour.

    long_recording.py [--minutes 60] [--part 5] [-F 99]

A process (recompiling.py) runs a compiled training step without a pause and compiles it anew once a minute. A row for
each part of the time, in minutes: the CPU of dynprof-bpf in % of one CPU, its resident memory at the end of the part,
bytes of the recording. Then what the end took, from SIGINT until all files are written, and what was lost.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import support  # noqa: E402
from bench_cost import Target  # noqa: E402
from own_cost import cpu_seconds, resident_mb, wait_for_end  # noqa: E402

WINDOWS = 50  # of 100 steps, in a request: a few seconds


class Trainer:
    def __init__(self):
        self.target = Target("aot_eager", 4, "")
        self.process = self.target.process
        self.compiles = 0

    def ask(self, work):
        self.target.work = work
        self.target.window()

    def work_until(self, end):
        while time.monotonic() < end:
            self.ask("compile 1")
            self.compiles += 1
            minute = min(end, time.monotonic() + 60)
            while time.monotonic() < minute:
                self.ask(f"steps {WINDOWS}")


def record_parts(trainer, run, recording, minutes, part):
    began = time.monotonic()
    cpu, size, done = cpu_seconds(run.pid), recording.stat().st_size, 0.0
    print(f"  {'minutes':<12} {'own CPU':>8} {'memory':>8} {'bytes/s':>9}", flush=True)
    while done < minutes:
        part = min(part, minutes - done)
        start = time.monotonic()
        trainer.work_until(began + 60 * (done + part))
        took = time.monotonic() - start
        new_cpu, new_size = cpu_seconds(run.pid), recording.stat().st_size
        own, rate = 100 * (new_cpu - cpu) / took, (new_size - size) / took
        print(f"  {f'{done:g} to {done + part:g}':<12} {own:6.2f} % {resident_mb(run.pid):5.0f} MB {rate:9,.0f}",
              flush=True)  # fmt: skip
        cpu, size, done = new_cpu, new_size, done + part


def show_end(out, trainer, ended, cpu_before_s):
    ledger = json.loads((out / "compiles.json").read_text())
    size = (out / "recording.dynprof").stat().st_size
    files = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    print(f"end: {ended.took_s:.2f} s by the clock, {ended.cpu_s - cpu_before_s:.2f} s of CPU; "
          f"peak memory {ended.peak_mb:.0f} MB")  # fmt: skip
    print(f"{ledger['samples']:,} samples; {len(ledger['compiles'])} rows of compiles, forward and backward, for "
          f"{trainer.compiles} in the recording and one before it")  # fmt: skip
    print(f"recording {size / 1e6:.1f} MB, all files {files / 1e6:.1f} MB")
    print("lost:", {key: value for key, value in ledger["lost"].items() if value})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--part", type=float, default=5, help="minutes of a row")
    parser.add_argument("-F", "--frequency", type=int, default=99)
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("error: needs root\nhint: sudo make bench")
    trainer = Trainer()
    trainer.ask("compile 1")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        run = support.Running(
            [support.BINARY, "record", "-F", options.frequency, "-o", out, "-p", trainer.process.pid],
            folder,
        )
        try:
            run.wait_for_err(r"(?m)^Sampling ")
            record_parts(trainer, run, out / "recording.dynprof", options.minutes, options.part)
            cpu = cpu_seconds(run.pid)
            run.interrupt()
            ended = wait_for_end(run)
        finally:
            run.kill()
            trainer.process.kill()
        show_end(out, trainer, ended, cpu)


if __name__ == "__main__":
    main()
