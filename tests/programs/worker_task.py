"""Work that takes a known CPU time; torch's compile workers import it by name."""

import os
import sys
import time

SPIN = "import time\nend = time.thread_time() + {}\nwhile time.thread_time() < end: pass\n"


def spin(seconds):
    exec(SPIN.format(seconds))


def work(seconds):
    """That much CPU time of the worker's own, then half of it in a child; what each took."""
    begin = time.process_time()
    spin(seconds)
    own = time.process_time() - begin
    program = [sys.executable, "-c", SPIN.format(seconds / 2)]
    child = os.posix_spawn(sys.executable, program, os.environ)
    _, _, usage = os.wait4(child, 0)
    return {
        "worker": os.getpid(),
        "worker_cpu_s": own,
        "child": child,
        "child_cpu_s": usage.ru_utime + usage.ru_stime,
    }
