"""Work that takes a known CPU time; torch's compile workers import it by name."""

import os
import sys
import time

SPIN = "import time\nend = time.thread_time() + {}\nwhile time.thread_time() < end: pass\n"


def spin(seconds):
    exec(SPIN.format(seconds))


told_s = 0.0  # of this process' CPU time


def work(seconds):
    """That much CPU time of the worker's own, then half of it in a child; what each took. A worker is forked at
    its first task: what it takes to begin with is that task's."""
    global told_s
    spin(seconds)
    program = [sys.executable, "-c", SPIN.format(seconds / 2)]
    child = os.posix_spawn(sys.executable, program, os.environ)
    _, _, usage = os.wait4(child, 0)
    now_s = time.process_time()
    own, told_s = now_s - told_s, now_s
    return {
        "worker": os.getpid(),
        "worker_cpu_s": own,
        "child": child,
        "child_cpu_s": usage.ru_utime + usage.ru_stime,
    }
