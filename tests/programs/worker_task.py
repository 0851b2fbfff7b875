"""What tree_job.py has torch's compile workers do: they import it by name."""

import os
import sys
import time

SPIN = "import time\nend = time.process_time() + {}\nwhile time.process_time() < end: pass\n"


def work(seconds):
    """That much CPU time of the worker's own, then half of it in a child; what each took."""
    begin = time.process_time()
    while time.process_time() < begin + seconds:
        pass
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
