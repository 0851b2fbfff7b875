"""A Python process, so that one can attach to it, with a child that waits some 100,000 times a second:
ping_pong_parent.py PING_PONG. Goes on until stdin ends."""

import subprocess
import sys

child = subprocess.Popen([sys.argv[1], "16"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
child.stdout.readline()
print("ready", flush=True)
sys.stdin.read()
