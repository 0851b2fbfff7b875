"""A target whose functions have known shares: one thread computes, one waits again and again, one waits once.

Prints `ready`. At each line on stdin it prints that line, and as JSON the seconds that functions have taken so far.
"""

import json
import sys
import threading
import time

WAIT_S = 0.25
TIMES = {"burn": 0.0, "wait_often": 0.0}


def burn():
    begin = time.thread_time()
    while time.thread_time() < begin + 0.05:
        sum(range(1000))
    TIMES["burn"] += time.thread_time() - begin


def call_burn():
    while True:
        burn()
        time.sleep(0.01)


def wait_often():
    while True:
        begin = time.monotonic()
        time.sleep(WAIT_S)
        TIMES["wait_often"] += time.monotonic() - begin


def wait_once(begin):
    begin.wait()
    threading.Event().wait()


if __name__ == "__main__":
    waits = threading.Event()
    for target, arguments in ((call_burn, ()), (wait_often, ()), (wait_once, (waits,))):
        threading.Thread(target=target, args=arguments, daemon=True).start()
    print("ready", flush=True)
    for line in sys.stdin:
        waits.set()
        print(line.strip(), json.dumps(TIMES), flush=True)
