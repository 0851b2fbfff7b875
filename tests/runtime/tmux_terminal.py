"""A terminal to run programs in: a shell in tmux, whose screen can be looked at and typed into."""

import os
import re
import subprocess
import time
from pathlib import Path

import support

PROMPT = r"^[#$] *$"
SIZES = [(80, 24), (120, 40), (40, 10)]  # columns and rows that tests try


def wait_until(holds, what, timeout=60):
    """`what` says what was waited for; a function is called when it did not come."""
    deadline = time.monotonic() + timeout
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"not in {timeout} s: {what() if callable(what) else what}")
        time.sleep(0.05)


class Terminal:
    """A shell in tmux, on a server of its own. What it writes is kept as bytes, too."""

    def __init__(self, folder, columns, rows, term="tmux-256color"):
        self.columns, self.rows = columns, rows
        self.socket, self.raw = folder / "socket", folder / "raw"
        environment = {**os.environ, "ENV": "", "PS1": "$ ", "TERM": "xterm", "LC_ALL": "C.UTF-8"}
        environment.pop("TMUX", None)
        self._tmux = ["tmux", "-u", "-S", str(self.socket), "-f", "/dev/null"]
        subprocess.run(
            [*self._tmux, "new-session", "-d", "-x", str(columns), "-y", str(rows), f"TERM={term} exec /bin/sh"],
            check=True,
            env=environment,
        )
        self.tmux("set", "-g", "status", "off")
        self.tmux("resize-window", "-x", columns, "-y", rows)
        self.tmux("pipe-pane", f"cat > {self.raw}")

    def tmux(self, *words):
        done = subprocess.run([*self._tmux, *map(str, words)], capture_output=True, text=True, check=True)
        return done.stdout

    def close(self):
        subprocess.run([*self._tmux, "kill-server"], capture_output=True)

    def type(self, text):
        self.tmux("send-keys", "-l", text)

    def enter(self, text):
        self.type(text)
        self.tmux("send-keys", "Enter")

    def key(self, name):
        self.tmux("send-keys", name)

    def screen(self):
        return self.tmux("capture-pane", "-p")

    def wait_for(self, pattern, timeout=60):
        found = []

        def seen():
            found[:] = [self.screen()]
            return re.search(pattern, found[0], re.M)

        wait_until(seen, lambda: f"{pattern!r} on the screen:\n{found[0]}", timeout)
        return found[0]

    def modes(self):
        """Alternate screen, cursor, wrapping."""
        return self.tmux("display", "-p", "#{alternate_on}#{cursor_flag}#{wrap_flag}").strip()

    def child(self):
        """What the shell runs."""
        shell = self.tmux("display", "-p", "#{pane_pid}").strip()
        return int(Path(f"/proc/{shell}/task/{shell}/children").read_text().split()[0])

    def drawn(self):
        """What was written between two cursor movements, without colours."""
        text = self.raw.read_bytes().decode("utf-8", "replace")
        parts = re.split(r"\x1b\[\d+;1H\x1b\[K", text)[1:]
        return [re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", part.split("\x1b[?7h")[0]) for part in parts]


def begin_top(screen, pid, *options):
    """Starts top; returns the settings of the terminal before. What is typed before a prompt would make the shell's
    output begin behind it: each command waits for the prompt of the one before."""
    screen.wait_for(PROMPT)
    screen.enter("clear; stty -g")
    settings = re.search(r"^[0-9a-f]+:[0-9a-f:\n]*", screen.wait_for(r"^[0-9a-f]+:[0-9a-f:\n]*^[#$]"), re.M)
    screen.enter(" ".join(["clear;", str(support.BINARY), "top", "-p", str(pid), *options, "; echo rc $?"]))
    return settings.group(0)
