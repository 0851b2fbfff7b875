"""A process of a given size, for bench_scale.py: scaled_job.py threads N | processes N | busy N.

    threads    N threads, ten Python functions deep, each of which sleeps and then works for half a millisecond
    processes  the same with N child processes instead of threads
    busy       N child processes that do nothing but run Python

Threads and processes sleep for the longer the more there are: together they work 1,000 times a second whatever N is.
Prints `ready <pids>`: those that work. Ends when its parent does.
"""

import ctypes
import os
import signal
import sys
import threading
import time

A_SECOND = 1000
WORK_S = 0.0005
DEPTH = 10


def work():
    end = time.perf_counter() + WORK_S
    while time.perf_counter() < end:
        pass


def turns(depth, seconds, first):
    if depth:
        return turns(depth - 1, seconds, first)
    time.sleep(first)
    while True:
        work()
        time.sleep(seconds)


def spin(depth):
    if depth:
        return spin(depth - 1)
    while True:
        sum(range(200))


def end_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def children(number, run):
    pids = []
    for i in range(number):
        pid = os.fork()
        if pid == 0:
            end_with_parent()
            run(i)
        pids.append(pid)
    return pids


def main():
    mode, number = sys.argv[1], int(sys.argv[2])
    end_with_parent()
    pause = number / A_SECOND
    pids = [os.getpid()]
    if mode == "threads":
        threading.stack_size(128 << 10)
        for i in range(number):
            threading.Thread(target=turns, args=(DEPTH, pause, pause * i / number), daemon=True).start()
    elif mode == "processes":
        pids = children(number, lambda i: turns(DEPTH, pause, pause * i / number))
    else:
        pids = children(number, lambda i: spin(DEPTH))
    print("ready", *pids, flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
