"""Targets whose threads and processes come and go. Each burns CPU in functions with telling names.

    process_life.py threads            three threads, one after the other has begun
    process_life.py children PYTHON    os.fork, multiprocessing (fork and spawn), PYTHON as a child,
                                       a shell; prints `child <kind> <pid>` for each
    process_life.py exec PYTHON        replaces itself by PYTHON running `after_exec`
    process_life.py leave STATUS       burns for a second, then exits with STATUS
    process_life.py count              counts until SIGTERM, prints `counted N`, exits with 0
    process_life.py burn NAME SECONDS  burns in a function called NAME

Prints `ready <pid>`, then waits for a line on stdin, unless `--no-wait` comes first.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

SECONDS = 0.6


def spin(seconds):
    """Of its thread's CPU time: how busy the machine is changes how long it takes, not how much. Where
    the thread's clock goes on while its CPU stands still, that counts as 2 ms at most."""
    last, left = time.thread_time(), seconds
    while left > 0:
        now = time.thread_time()
        left -= min(now - last, 0.002)
        last = now


def call_as(name, function, *arguments):
    """Calls it from a function called `name`."""
    namespace = {"function": function, "arguments": arguments}
    exec(f"def {name}():\n    return function(*arguments)\n", namespace)
    return namespace[name]()


def threads():
    started = []
    for number in range(3):
        name = f"late_thread_{number}"
        thread = threading.Thread(target=call_as, args=(name, spin, 2 * SECONDS), name=name)
        thread.start()
        started.append(thread)
        call_as("between_threads", spin, SECONDS / 2)
    for thread in started:
        thread.join()


def announce(kind):
    print("child", kind, os.getpid(), flush=True)


def process_main(kind):
    announce(kind)
    call_as(f"{kind}_child", spin, SECONDS)


def children(python):
    pid = os.fork()
    if pid == 0:
        process_main("fork")
        os._exit(0)
    os.waitpid(pid, 0)
    for method in ("fork", "spawn"):
        context = multiprocessing.get_context(method)
        process = context.Process(target=process_main, args=(f"multiprocessing_{method}",))
        process.start()
        process.join()
    me = os.path.abspath(__file__)
    argv = [python, me, "--no-wait", "burn", "subprocess_child", str(SECONDS)]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as child:
        print("child subprocess", child.pid, flush=True)
    loop = "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done"
    with subprocess.Popen(["/bin/sh", "-c", loop]) as child:
        print("child shell", child.pid, flush=True)


def replace(python):
    call_as("before_exec", spin, SECONDS)
    os.execv(python, [python, os.path.abspath(__file__), "--no-wait", "burn", "after_exec", "1"])


def leave(status):
    call_as("before_exit", spin, 1.0)
    os._exit(int(status))


def count():
    stopped = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    counted = 0
    while not stopped:
        counted += 1
        if counted % 1_000_000 == 0:
            print("at", counted, flush=True)
    print("counted", counted, flush=True)


def burn(name, seconds):
    call_as(name, spin, float(seconds))


VERBS = {
    "threads": threads,
    "children": children,
    "exec": replace,
    "leave": leave,
    "count": count,
    "burn": burn,
}


def main():
    arguments = sys.argv[1:]
    wait = arguments[0] != "--no-wait"
    if not wait:
        arguments.pop(0)
    print("ready", os.getpid(), flush=True)
    if wait:
        sys.stdin.readline()
    VERBS[arguments[0]](*arguments[1:])


if __name__ == "__main__":
    main()
