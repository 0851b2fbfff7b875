"""A server of targets for injected faults: torch is imported once, each target is a fork of it.

Reads lines from stdin:
  spawn FOLDER     a target with stdin FOLDER/in (a FIFO), stdout FOLDER/stdout, stderr FOLDER/stderr; its pid goes to
                   FOLDER/pid, and in the end its status to FOLDER/status
A target prints `ready`, works from `go` on, and understands:
  quiet N  stands still, makes the file FOLDER/quiet-N, and goes on at the next line
  deep     works under 300 frames
  setuid   becomes another user
  exec     becomes another Python, which works on alike, without torch
  end      prints `done` with the number of wrong results, and exits with 3
"""

import os
import select
import signal
import sys
import time

import torch

EXECUTED = """
import select, sys
wrong = 0
while not select.select([0], [], [], 0)[0]:
    wrong += sum(range(2000)) != 1999000
print("done", wrong, "wrong", flush=True)
sys.exit(3)
"""


class Target:
    def __init__(self, folder):
        self.folder = folder
        self.wrong = 0
        self.depth = 0
        self.steps = 0
        self.step = None

    def compile(self):
        torch._dynamo.reset()

        @torch.compile(backend="aot_eager", dynamic=False)
        def step(x):
            return torch.tanh(x * 3).sum()

        self.step = step

    def work(self):
        if self.steps % 60 == 0:
            self.compile()
        self.steps += 1
        x = torch.ones(8, requires_grad=True)
        self.step(x).backward()
        self.wrong += abs(x.grad.sum().item() - 0.23683) > 1e-4
        self.wrong += sum(range(20_000)) != 199_990_000
        before = time.time_ns()
        time.sleep(0.003)
        self.wrong += time.time_ns() < before - 3_600_000_000_000

    def under(self, depth):
        if depth:
            self.under(depth - 1)
        else:
            self.work()
            for _ in range(50):
                self.wrong += sum(range(20_000)) != 199_990_000

    def obey(self, line):
        word, *rest = line.split()
        if word == "quiet":
            made = f"{self.folder}/quiet-{rest[0]}"
            open(f"{made}.new", "w").close()
            os.rename(f"{made}.new", made)  # there once nothing of it is open
            self.obey(sys.stdin.readline())
        elif word == "deep":
            self.depth = 300
        elif word == "setuid":
            os.setgid(65534)
            os.setuid(65534)
        elif word == "exec":
            os.execv(sys.executable, [sys.executable, "-c", EXECUTED])
        elif word == "end":
            print("done", self.wrong, "wrong", flush=True)
            os._exit(3)

    def run(self):
        print("ready", flush=True)
        sys.stdin.readline()
        while True:
            if self.depth:
                self.under(self.depth)
            else:
                self.work()
            if select.select([0], [], [], 0)[0]:
                self.obey(sys.stdin.readline())


def become_target(folder):
    os.setsid()
    # Open at both ends, so that neither side waits for the other and no end of file is seen.
    for fd, name, flags in (
        (0, "in", os.O_RDWR),
        (1, "stdout", os.O_WRONLY | os.O_CREAT | os.O_APPEND),
        (2, "stderr", os.O_WRONLY | os.O_CREAT | os.O_APPEND),
    ):
        opened = os.open(f"{folder}/{name}", flags, 0o666)
        os.dup2(opened, fd)
        os.close(opened)
    # Line by line: what a buffer has read ahead is not seen by select().
    sys.stdin = os.fdopen(0, "rb", buffering=0, closefd=False)
    raw = sys.stdin
    sys.stdin = type("Lines", (), {"readline": staticmethod(lambda: raw.readline().decode())})
    Target(folder).run()


def written(path, text):
    with open(path + ".part", "w") as file:
        file.write(text)
    os.replace(path + ".part", path)


def spawn(folder):
    """The target's parent is a process of its own, which waits for it."""
    if os.fork():
        return
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:
        become_target(folder)
    written(f"{folder}/pid", str(pid))
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    written(f"{folder}/status", str(status))
    os._exit(0)


def main():
    torch.set_num_threads(1)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no zombies of spawn()
    print("ready", flush=True)
    for line in sys.stdin:
        word, folder = line.rstrip("\n").split(" ", 1)
        if word == "spawn":
            spawn(folder)


main()
