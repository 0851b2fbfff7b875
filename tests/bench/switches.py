"""Two Python threads that hand over to each other: switches.py MODE FILE.

FILE is mapped; its first word is the number of passes so far.
  lock   each waits for a lock that the other releases
  queue  each waits for an item that the other puts into a queue.Queue: several waits a pass, at several
         lines of several functions
Both are called through a few Python functions, so that there is a stack.
"""

import mmap
import queue
import sys
import threading

with open(sys.argv[2], "r+b") as file:
    shared = memoryview(mmap.mmap(file.fileno(), 16)).cast("Q")


def wait_for(take):
    return take()


def hand_over(take, give):
    wait_for(take)
    give()


def run(take, give):
    while True:
        hand_over(take, give)
        shared[0] += 1


if sys.argv[1] == "lock":
    locks = threading.Lock(), threading.Lock()
    locks[0].acquire()
    ends = [(locks[0].acquire, locks[1].release), (locks[1].acquire, locks[0].release)]
else:
    queues = queue.Queue(), queue.Queue()
    queues[0].put(None)
    ends = [
        (queues[0].get, lambda: queues[1].put(None)),
        (queues[1].get, lambda: queues[0].put(None)),
    ]
threads = [threading.Thread(target=run, args=end, daemon=True) for end in ends]
for thread in threads:
    thread.start()
print("ready", flush=True)
threads[0].join()
