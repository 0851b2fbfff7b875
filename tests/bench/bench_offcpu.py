"""What timing waits costs at tens of thousands of switches a second: ping_pong.py bare, recorded
without waits, and recorded with them.

    bench_offcpu.py [--rounds N] [--seconds S]

Windows take turns inside one run of the target, and each is held against the bare windows around it.
What the kernel spends in our two tracepoint programs is counted by itself (kernel.bpf_stats_enabled),
over all switches of the machine meanwhile. Last, how much of the waiting time carries a stack.
"""

import argparse
import json
import mmap
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPO = HERE.parent.parent
sys.path.insert(0, str(REPO / "tests"))
sys.path.insert(0, str(REPO / "tests" / "runtime"))

import samples  # noqa: E402
import support  # noqa: E402

STATS_SWITCH = Path("/proc/sys/kernel/bpf_stats_enabled")
PROGRAMS = ("thread_switched", "thread_woken")


class PingPong:
    def __init__(self):
        self._file = tempfile.NamedTemporaryFile()
        self._file.write(bytes(16))
        self._file.flush()
        self.target = support.spawn([sys.executable, HERE / "ping_pong.py", self._file.name])
        self.target.wait_for("^ready")
        self._shared = memoryview(mmap.mmap(self._file.fileno(), 16)).cast("Q")

    def rate(self, seconds):
        """Round trips per second of CPU that was to be had: without what others took of it."""
        began, trips, delay = time.monotonic(), self._shared[0], self._delay()
        time.sleep(seconds)
        wall = time.monotonic() - began
        return (self._shared[0] - trips) / (wall - (self._delay() - delay))

    def _delay(self):
        return int(Path(f"/proc/{self.target.pid}/schedstat").read_text().split()[1]) / 1e9


def programs():
    tool = shutil.which("bpftool", path="/usr/sbin:/sbin:/usr/bin")
    done = subprocess.run([tool, "-j", "prog", "show"], capture_output=True, check=True)
    return {row["id"]: row for row in json.loads(done.stdout) if row.get("name") in PROGRAMS}


def window(pair, folder, seconds, options, stats=None):
    """The rate while we record; with `stats`, what the kernel counted of our programs too."""
    window.count = getattr(window, "count", 0) + 1
    out = folder / f"out-{window.count}"
    others = set(programs())
    argv = ["record", "--no-svg", "-F", 99, "-o", out, "-p", pair.target.pid, *options]
    run = support.Running([support.BINARY, *argv], folder)
    run.wait_for_err(r"(?m)^Sampling ")
    time.sleep(0.3)
    rate = pair.rate(seconds)
    if stats is not None:
        for number, row in programs().items():
            if number not in others:
                stats[row["name"]] = (row.get("run_time_ns", 0), row.get("run_cnt", 0))
    run.interrupt()
    done = run.wait()
    assert done.rc == 0, done
    return rate, out


def shares(out):
    dump = samples.Dump(out / "recording.dynprof")
    waits = [wait for wait in dump.waits if wait.kind not in ("none", "preempted")]
    waits = [wait for wait in waits if not wait.flags & samples.WAIT_AT_ATTACH]
    total = sum(wait.length_ns for wait in waits)
    stacked = sum(wait.length_ns for wait in waits if wait.stack)
    counted = sum(wait.count for wait in waits)
    size = (out / "recording.dynprof").stat().st_size
    return stacked / total, counted, len(waits), size, dump.trailer["counters"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.5)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-offcpu-"))
    pair = PingPong()
    found = {"bare": [], "record --no-off-cpu": [], "record": []}
    switches = []
    try:
        for _ in range(options.rounds):
            before = pair.rate(options.seconds)
            for name, more in (
                ("bare", None),
                ("record --no-off-cpu", ["--no-off-cpu"]),
                ("record", []),
            ):
                during = pair.rate(options.seconds)
                if more is not None:
                    during, out = window(pair, folder, options.seconds, more)
                after = pair.rate(options.seconds)
                found[name].append((before + after) / 2 / during - 1)
                switches.append(2 * after)
                before = after
        was = STATS_SWITCH.read_text()
        STATS_SWITCH.write_text("1\n")
        stats = {}
        try:
            window(pair, folder, 3 * options.seconds, [], stats)
        finally:
            STATS_SWITCH.write_text(was)
        print(f"bare: {statistics.median(switches):,.0f} switches/s")
        for name, values in found.items():
            low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
            print(f"{name:<22} {100 * middle:+.2f} % ({100 * low:+.2f} .. {100 * high:+.2f})")
        for name, (spent, runs) in stats.items():
            print(f"{name}: {spent / max(1, runs):.0f} ns a run, {runs:,} runs")
        share, counted, rows, size, counters = shares(out)
        print(f"waiting time with a stack: {100 * share:.2f} %")
        print(f"{counted:,} waits in {rows:,} rows; recording {size:,} bytes; {counters}")
    finally:
        pair.target.kill()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
