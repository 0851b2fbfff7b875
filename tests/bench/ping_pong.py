"""Two processes on one CPU that pass a byte back and forth through pipes: ping_pong.py FILE.

FILE is mapped; its first word is the number of round trips so far, each two switches to a thread that
waits in a read, and back.
"""

import mmap
import os
import sys

with open(sys.argv[1], "r+b") as file:
    shared = memoryview(mmap.mmap(file.fileno(), 16)).cast("Q")
there, back = os.pipe(), os.pipe()
cpu = max(os.sched_getaffinity(0))
os.sched_setaffinity(0, {cpu})
parent = os.getpid()
if os.fork() == 0:
    while os.getppid() == parent:
        os.read(there[0], 1)
        os.write(back[1], b"x")
    os._exit(0)
print("ready", flush=True)
while True:
    os.write(there[1], b"x")
    os.read(back[0], 1)
    shared[0] += 1
