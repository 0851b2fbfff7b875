"""What a process uses: the CPU time of its threads so far, and what it used in all when it has ended."""

import os
import re
import time
from pathlib import Path
from typing import NamedTuple


def cpu_seconds(pid):
    """Of all threads of a process, or of one: `pid` may be "PID/task/TID"."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def page_faults(pid):
    """Minor and major ones."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[7]) + int(fields[9])


def cpu_by_thread(pid):
    """{name of a thread: CPU seconds}; those of one name together."""
    used = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            name, seconds = (task / "comm").read_text().strip(), cpu_seconds(f"{pid}/task/{task.name}")
        except OSError:  # it has ended
            continue
        used[name] = used.get(name, 0) + seconds
    return used


def resident_mb(pid, field="VmRSS"):
    return int(re.search(rf"{field}:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) / 1024


class Ended(NamedTuple):
    took_s: float  # by the clock
    cpu_s: float  # of its whole life
    peak_mb: float


def wait_for_end(run, status=0):
    """Ended of a support.Running, which must exit with this status."""
    began = time.monotonic()
    _, ended, usage = os.wait4(run.pid, 0)
    run.process.returncode = os.waitstatus_to_exitcode(ended)
    assert run.process.returncode == status, run.peek()
    return Ended(time.monotonic() - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)
