"""Times in which a CPU of this machine stood still: a virtual CPU whose host runs something else meanwhile.

No sample is taken then, and what was sampled before is read late, when short-lived code objects are gone: what a test
says of every sample cannot be said of these. A thread on each CPU, at real-time priority, sleeps for 10 ms at a time;
if that takes more than 20 ms nothing else ran there either.
"""

import contextlib
import json
import os
import subprocess
import sys
import threading
import time

SLEEP_S = 0.01
LATE_NS = 20_000_000
AFTER_NS = 50_000_000  # until what has waited meanwhile is done


class Stalls:
    """[(begin_ns, end_ns), ...] by CLOCK_MONOTONIC, of all CPUs; known when watch() has ended."""

    def __init__(self):
        self.times = []

    def during(self, begin_ns, end_ns):
        return any(begin <= end_ns and begin_ns <= end + AFTER_NS for begin, end in self.times)


@contextlib.contextmanager
def watch():
    process = subprocess.Popen(
        [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    stalls = Stalls()
    try:
        assert process.stdout.readline() == "watching\n"
        yield stalls
        stalls.times = json.loads(process.communicate(timeout=30)[0])
    finally:
        process.kill()
        process.wait()


def watch_cpu(cpu, started, ended, times):
    os.sched_setaffinity(0, {cpu})
    with contextlib.suppress(OSError):  # no real-time priority to be had: the usual one is late now and then
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    started.release()
    while not ended.is_set():
        begin = time.monotonic_ns()
        time.sleep(SLEEP_S)
        end = time.monotonic_ns()
        if end - begin > LATE_NS:
            times.append((begin, end))


def main():
    started, ended, times = threading.Semaphore(0), threading.Event(), []
    threads = [
        threading.Thread(target=watch_cpu, args=(cpu, started, ended, times))
        for cpu in os.sched_getaffinity(0)
    ]
    for thread in threads:
        thread.start()
    for _ in threads:
        started.acquire()
    print("watching", flush=True)
    sys.stdin.read()
    ended.set()
    for thread in threads:
        thread.join()
    json.dump(sorted(times), sys.stdout)


if __name__ == "__main__":
    main()
