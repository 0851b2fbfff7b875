"""Running things for the tests: dynprof-bpf itself, target processes, and the CPythons found here."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("DYNPROF_BUILD", REPO / "build")).resolve()
VENV = Path(os.environ.get("DYNPROF_VENV", REPO / ".venv")).absolute()
BINARY = BUILD / "dynprof-bpf"
IN_CI = os.environ.get("CI") == "true"


# ---- interpreters --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Interpreter:
    path: str
    version: tuple  # (3, 11, 7)
    shared: bool  # libpython is a shared library of its own

    @property
    def minor(self):
        return self.version[:2]

    @property
    def label(self):
        text = ".".join(map(str, self.version))
        return f"{text}-{'shared' if self.shared else 'static'}"

    def __str__(self):
        return self.label


# Debian builds both a libpython and a static executable: only the running process tells them apart.
_PROBE = (
    "import sys;"
    "print(*sys.version_info[:3], int('/libpython3.' in open('/proc/self/maps').read()),"
    " sys.implementation.name)"
)


def probe_interpreter(path):
    """The Interpreter at path, or None if it does not run or is no CPython."""
    try:
        done = subprocess.run(
            [path, "-I", "-c", _PROBE], capture_output=True, text=True, timeout=20, check=True
        )
        major, minor, micro, shared, name = done.stdout.split()
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    if name != "cpython":
        return None
    return Interpreter(str(path), (int(major), int(minor), int(micro)), shared == "1")


def _interpreter_candidates():
    """DYNPROF_PYTHONS (colon separated) alone where it is set, else the places CPythons live in."""
    if "DYNPROF_PYTHONS" in os.environ:
        return [Path(p) for p in os.environ["DYNPROF_PYTHONS"].split(":") if p]
    homes = {Path.home()}
    if "SUDO_USER" in os.environ:
        try:
            homes.add(Path(pwd.getpwnam(os.environ["SUDO_USER"]).pw_dir))
        except KeyError:
            pass
    roots = {home / ".pyenv" for home in homes}
    if "PYENV_ROOT" in os.environ:
        roots.add(Path(os.environ["PYENV_ROOT"]))
    found = []
    for root in sorted(roots):
        try:
            found += sorted(root.glob("versions/3.*/bin/python3"))
        except PermissionError:
            pass  # another person's home
    for folder in ("/usr/bin", "/usr/local/bin", str(VENV / "bin")):
        found += [p for p in sorted(Path(folder).glob("python3.*")) if p.name[8:].isdigit()]
    return found


@functools.lru_cache(maxsize=None)
def interpreters():
    """Every CPython 3.8 and later found: the newest of each minor version and linkage."""
    newest = {}
    for path in _interpreter_candidates():
        found = probe_interpreter(path)
        if found is None or found.version < (3, 8):
            continue
        key = (found.minor, found.shared)
        if key not in newest or newest[key].version < found.version:
            newest[key] = found
    return tuple(newest[key] for key in sorted(newest))


@functools.lru_cache(maxsize=None)
def unpacked_interpreters():
    """Those of scripts/interpreters.sh. Their path is a script that becomes the interpreter, with another
    /usr than ours."""
    if "DYNPROF_PYTHONS" in os.environ:
        return ()
    cache = Path(os.environ.get("DYNPROF_CACHE", Path.home() / ".cache" / "dynprof-bpf"))
    found = (probe_interpreter(p) for p in sorted((cache / "interpreters" / "bin").glob("python3.*")))
    return tuple(i for i in found if i is not None)


@functools.lru_cache(maxsize=None)
def venv_python():
    """The set-up step's interpreter (torch, pstats viewers), or None."""
    path = VENV / "bin" / "python"
    return probe_interpreter(path) if path.exists() else None


# ---- what this machine allows --------------------------------------------------------------------


@functools.lru_cache(maxsize=None)
def why_no_bpf():
    """None if BPF programs can be loaded here, else the reason in words."""
    if os.geteuid() != 0:
        return "needs root: BPF programs are loaded"
    if not os.path.exists("/sys/kernel/btf/vmlinux"):
        return "this kernel has no BTF (/sys/kernel/btf/vmlinux)"
    if sys.platform != "linux" or os.uname().machine not in ("x86_64", "aarch64"):
        return "no bpf system call known for this machine"
    # bpf(BPF_MAP_CREATE) of a one-entry array: the cheapest thing that is refused where BPF is.
    number = {"x86_64": 321, "aarch64": 280}[os.uname().machine]
    libc = ctypes.CDLL(None, use_errno=True)
    attr = (ctypes.c_uint32 * 32)(2, 4, 4, 1)
    fd = libc.syscall(number, 0, ctypes.byref(attr), ctypes.sizeof(attr))
    if fd < 0:
        return f"bpf() refused: {os.strerror(ctypes.get_errno())}"
    os.close(fd)
    return None


# ---- dynprof-bpf ---------------------------------------------------------------------------------


@dataclass
class Completed:
    args: list
    rc: int
    out: str
    err: str
    seconds: float

    def __str__(self):
        return (
            f"$ {' '.join(map(str, self.args))}\nrc {self.rc} after {self.seconds:.1f} s\n"
            f"--- stdout\n{self.out[-4000:]}\n--- stderr\n{self.err[-4000:]}"
        )


def _drop_to(user):
    entry = pwd.getpwnam(user)

    def drop():
        os.setgroups([])
        os.setgid(entry.pw_gid)
        os.setuid(entry.pw_uid)

    return drop


def stacks_of(pid):
    """Where a process that does not end is; gdb shows more than the kernel, where there is one."""
    if shutil.which("gdb"):
        asked = ["gdb", "-p", str(pid), "-batch", "-ex", "thread apply all bt"]
        try:
            return subprocess.run(asked, capture_output=True, text=True, timeout=60).stdout[-8000:]
        except subprocess.TimeoutExpired:
            pass
    lines = []
    for thread in Path(f"/proc/{pid}/task").glob("*"):
        try:
            lines += [f"{thread.name}: {(thread / 'comm').read_text()}", (thread / "stack").read_text()]
        except OSError as problem:
            lines.append(f"{thread.name}: {problem}")
    return "\n".join(lines)


class Running:
    """A dynprof-bpf in flight. Output goes to files, so that no pipe can fill up."""

    def __init__(self, args, folder, user=None, env=None, cwd=None):
        self.args = [str(a) for a in args]
        self._out = tempfile.NamedTemporaryFile("w+b", dir=folder, prefix="out-", delete=False)
        self._err = tempfile.NamedTemporaryFile("w+b", dir=folder, prefix="err-", delete=False)
        self._began = time.monotonic()
        self.process = subprocess.Popen(
            self.args,
            stdin=subprocess.DEVNULL,
            stdout=self._out,
            stderr=self._err,
            env={**os.environ, **(env or {})},
            cwd=cwd,
            preexec_fn=_drop_to(user) if user else None,
        )
        self.pid = self.process.pid

    @staticmethod
    def _text(handle):
        return Path(handle.name).read_bytes().decode("utf-8", "replace")

    @property
    def out(self):
        return self._text(self._out)

    @property
    def err(self):
        return self._text(self._err)

    def wait_for_err(self, pattern, timeout=30):
        """Waits until stderr matches; what dynprof-bpf says there is how one knows it sampled."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            found = re.search(pattern, self.err)
            if found:
                return found
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        raise AssertionError(f"stderr never matched {pattern!r}\n{self.peek()}")

    def signal(self, number):
        self.process.send_signal(number)

    def interrupt(self):
        self.signal(signal.SIGINT)

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def peek(self):
        return Completed(self.args, self.process.poll(), self.out, self.err, 0.0)

    def wait(self, timeout=120):
        try:
            rc = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            state = f"{self.peek()}\n{stacks_of(self.pid)}"
            self.kill()
            raise AssertionError(f"still running after {timeout} s\n{state}") from None
        return Completed(self.args, rc, self.out, self.err, time.monotonic() - self._began)


class Dynprof:
    """Starts build/dynprof-bpf and ends what was started."""

    def __init__(self, folder, binary=BINARY):
        self.binary = binary
        self._folder = folder
        self._started = []

    def start(self, *args, user=None, env=None, cwd=None):
        assert self.binary.exists(), f"{self.binary} does not exist: run make first"
        run = Running([self.binary, *args], self._folder, user, env, cwd)
        self._started.append(run)
        return run

    def run(self, *args, timeout=120, **options):
        return self.start(*args, **options).wait(timeout)

    def close(self):
        for run in self._started:
            run.kill()


# ---- target processes ----------------------------------------------------------------------------


@dataclass
class Target:
    """A process the tests attach to. It prints a line when it is ready; all lines are kept."""

    process: subprocess.Popen
    lines: list = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _closed: bool = False

    def __post_init__(self):
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self):
        return self.process.pid

    @property
    def text(self):
        return "\n".join(self.lines)

    def _read(self):
        for line in self.process.stdout:
            with self._changed:
                self.lines.append(line.rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def wait_for(self, pattern, timeout=30):
        """The match in the first line that has the pattern; fails when the target ends without one."""
        deadline = time.monotonic() + timeout
        seen = 0
        with self._changed:
            while True:
                for line in self.lines[seen:]:
                    found = re.search(pattern, line)
                    if found:
                        return found
                seen = len(self.lines)
                left = deadline - time.monotonic()
                if left <= 0 or self._closed:
                    why = "ended" if self._closed else f"said nothing of it in {timeout} s"
                    raise AssertionError(
                        f"the target {why}, expected a line with {pattern!r}; it printed:\n{self.text}"
                    )
                self._changed.wait(left)

    def send(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def signal(self, number):
        self.process.send_signal(number)

    def alive(self):
        return self.process.poll() is None

    def wait(self, timeout=60):
        rc = self.process.wait(timeout)
        self._reader.join(timeout)
        return rc

    def kill(self):
        """Ends the target and all it started (it has a session of its own)."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self._reader.join(10)
        for pipe in (self.process.stdin, self.process.stdout):
            try:
                pipe.close()
            except OSError:
                pass


def _lower_group(process):
    """sched_autogroup makes a group of each session, and the nice value of processes does not reach its weight. The
    targets of tests that run at low priority beside others get less of the CPU too, but still a share of it."""
    nice = min(os.getpriority(os.PRIO_PROCESS, 0), 5)
    if nice > 0:
        with contextlib.suppress(OSError):  # no autogroups here, or not root
            Path(f"/proc/{process.pid}/autogroup").write_text(str(nice))


def spawn(argv, ready="ready", timeout=60, user=None, env=None, cwd=None):
    """Starts argv and waits for a line that matches `ready` (None: does not wait)."""
    process = subprocess.Popen(
        [str(a) for a in argv],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})},
        cwd=cwd,
        start_new_session=True,
        preexec_fn=_drop_to(user) if user else None,
    )
    _lower_group(process)
    target = Target(process)
    if ready is not None:
        try:
            target.wait_for(ready, timeout)
        except AssertionError:
            target.kill()
            raise
    return target


def free_mb(path):
    return shutil.disk_usage(path).free // 2**20


def tool(name):
    """Path of a program that only some tests need."""
    return shutil.which(name) or pytest.skip(f"no {name}")


def split_debug(binary, folder):
    """A copy without symbols and DWARF, and its debug file, in no place where it would be found."""
    bare, debug = folder / "bare" / binary.name, folder / "elsewhere" / f"{binary.name}.debug"
    for path in (bare, debug):
        path.parent.mkdir(parents=True)
    subprocess.run([tool("objcopy"), "--only-keep-debug", binary, debug], check=True)
    subprocess.run([tool("objcopy"), "--strip-all", binary, bare], check=True)
    return bare, debug


def bpftool():
    """The build needs it too, so it is there."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"  # where Debian keeps it
    return shutil.which("bpftool", path=path) or "bpftool"


def bpf_programs():
    """All BPF programs that are loaded, as bpftool describes them."""
    return json.loads(subprocess.check_output([bpftool(), "-j", "prog", "show"]) or b"[]")


def bpf_programs_of(pid):
    """Ids of the BPF programs that a process has descriptors of. Raises OSError where the process has ended."""
    held = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            if os.readlink(f"/proc/{pid}/fd/{fd}").startswith("anon_inode:bpf"):
                text = Path(f"/proc/{pid}/fdinfo/{fd}").read_text()
                held |= {int(number) for number in re.findall(r"^prog_id:\s*(\d+)", text, re.M)}
        except FileNotFoundError:
            continue  # closed meanwhile
    return held
