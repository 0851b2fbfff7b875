"""Waits of known kinds, lengths and places: known_waits.py TRUTH.

It prints "ready", waits for a line on stdin, then does one thing after the other and notes for each
(kind, function, line, tid, begin, due, end) by CLOCK_MONOTONIC, as JSON, and the CPU time of its threads.
No wait ends before `due`: its own time is over then, or another thread is about to end it.
"""

import json
import os
import select
import socket
import subprocess
import sys
import threading
import time

truth = []
threads = []
wakes = []
LONG = 0.25
LONG_NS = int(LONG * 1e9)
ROUNDS = 3


def clock():
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def note(kind, work, due=None):
    begin = clock()
    work()
    end = clock()
    truth.append(
        {
            "kind": kind,
            "function": work.__name__,
            "line": work.__code__.co_firstlineno + 1,
            "tid": threading.get_native_id(),
            "begin": begin,
            "due": due() if due else begin + LONG_NS,
            "end": end,
        }
    )


def sleeps():
    time.sleep(LONG)


lock = threading.Lock()


def waits_for_lock():
    lock.acquire()


def wake(send):
    wakes.append(clock())
    send()


def holder():
    time.sleep(LONG)
    wake(lock.release)


def reads_pipe():
    os.read(pipe_ends[0], 1)


def reads_socket():
    sockets[0].recv(1)


def polls():
    poller.poll(LONG * 1000)


def selects():
    select.select([], [], [], LONG)


def waits_for_child():
    os.waitpid(children[-1].pid, 0)


def one_round():
    note("sleep", sleeps)
    lock.acquire()
    helper = threading.Thread(target=holder)
    helper.start()
    note("futex", waits_for_lock, wakes.pop)
    helper.join()
    lock.release()
    for kind, work, send in (
        ("pipe", reads_pipe, lambda: os.write(pipe_ends[1], b"x")),
        ("socket", reads_socket, lambda: sockets[1].send(b"x")),
    ):
        timer = threading.Timer(LONG, wake, [send])
        timer.start()
        note(kind, work, wakes.pop)
        timer.join()
    note("poll", polls)
    note("poll", selects)
    started = clock()
    # Kept: a Popen object that is freed waits for its child, if that has ended already.
    children.append(subprocess.Popen(["/bin/sleep", str(LONG)]))
    note("child", waits_for_child, lambda: started + LONG_NS)
    spin(LONG)


def spin(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def times(name, begin, begin_cpu):
    threads.append(
        {
            "name": name,
            "tid": threading.get_native_id(),
            "begin": begin,
            "end": clock(),
            "cpu": time.clock_gettime_ns(time.CLOCK_THREAD_CPUTIME_ID) - begin_cpu,
        }
    )


def contends():
    """Two processes on one CPU, neither of which ever waits."""
    cpu = max(os.sched_getaffinity(0))
    pid = os.fork()
    if pid == 0:
        os.sched_setaffinity(0, {cpu})
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            pass
        os._exit(0)
    os.sched_setaffinity(0, {cpu})
    begin, begin_cpu = clock(), time.clock_gettime_ns(time.CLOCK_THREAD_CPUTIME_ID)
    spin(1.0)
    times("contends", begin, begin_cpu)
    os.sched_setaffinity(0, all_cpus)
    os.waitpid(pid, 0)


def asleep_before():
    before_ended.wait()


all_cpus = os.sched_getaffinity(0)
pipe_ends = os.pipe()
sockets = socket.socketpair()
poller = select.poll()
poller.register(pipe_ends[0], select.POLLIN)
children = []
before_ended = threading.Event()
sleeper = threading.Thread(target=asleep_before)
sleeper.start()

print("ready", flush=True)
sys.stdin.readline()
begin_, cpu_ = clock(), time.clock_gettime_ns(time.CLOCK_THREAD_CPUTIME_ID)
for _ in range(ROUNDS):
    one_round()
times("rounds", begin_, cpu_)
contends()
woken = clock()
before_ended.set()
sleeper.join()
with open(sys.argv[1], "w") as out:
    json.dump({"waits": truth, "threads": threads, "sleeper": sleeper.native_id, "woken": woken}, out)
print("done", flush=True)
