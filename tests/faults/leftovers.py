"""What a profiler may have left behind: BPF programs, processes, breakpoints, changed code, mappings, threads,
files. Other dynprof-bpf may run on the machine at the same time: of BPF programs only those without an owner
count, of processes those with a marker in their environment."""

import array
import ctypes
import os
import re
import time
from pathlib import Path

import support

PAGE = os.sysconf("SC_PAGE_SIZE")
PRESENT, FILE_PAGE = 1 << 63, 1 << 61  # /proc/PID/pagemap
# BPF programs are freed after a grace period of the kernel, uprobes by a worker of it.
PATIENCE_S = 15


# ---- the kernel ----------------------------------------------------------------------------------


def our_program_names():
    """As the kernel keeps them: 15 characters."""
    sources = (support.REPO / "bpf").glob("*.bpf.c")
    text = "\n".join(source.read_text() for source in sources)
    return {name[:15] for name in re.findall(r"^int (?:BPF_PROG\()?(\w+)", text, re.M)}


def _held_programs():
    """Ids of the programs that some process has a descriptor of."""
    held = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            held |= support.bpf_programs_of(folder.name)
        except OSError:
            continue  # it ended, or is a kernel thread's
    return held


def orphaned_programs(names):
    """Programs with our names that belong to no process: {id: name}."""
    programs = {row["id"]: row.get("name", "") for row in support.bpf_programs()}
    ours = {number: name for number, name in programs.items() if name in names}
    if not ours:
        return {}
    held = _held_programs()
    return {number: name for number, name in ours.items() if number not in held}


# ---- processes -----------------------------------------------------------------------------------


def processes_of(marker):
    """Processes that have the marker in their environment, dynprof-bpf and what it started: {pid: command}."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            if state == "Z" or marker.encode() not in (folder / "environ").read_bytes():
                continue
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
            found[int(folder.name)] = command.decode(errors="replace")
        except OSError:
            continue  # it ended, or is a kernel thread
    return found


# ---- the target ----------------------------------------------------------------------------------


def _mappings(pid):
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        span, permissions, offset, _, inode, *path = line.split(None, 5)
        begin, end = (int(text, 16) for text in span.split("-"))
        yield begin, end, permissions, int(offset, 16), int(inode), path[0] if path else ""


def changed_code(pid):
    """Pages of executable files whose bytes in memory are not those of the file: [(path, offset)]."""
    changed = []
    with open(f"/proc/{pid}/pagemap", "rb") as pagemap, open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for begin, end, permissions, offset, inode, path in _mappings(pid):
            if "x" not in permissions or "w" in permissions or not inode:
                continue
            pagemap.seek(begin // PAGE * 8)
            entries = array.array("Q", pagemap.read((end - begin) // PAGE * 8))
            private = [n for n, e in enumerate(entries) if e & PRESENT and not e & FILE_PAGE]
            if not private:
                continue
            with open(f"/proc/{pid}/map_files/{begin:x}-{end:x}", "rb") as file:
                for number in private:
                    memory.seek(begin + number * PAGE)
                    file.seek(offset + number * PAGE)
                    if memory.read(PAGE) != file.read(PAGE).ljust(PAGE, b"\0"):
                        changed.append((path, offset + number * PAGE))
    return changed


class _BreakpointAttributes(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_uint32), ("size", ctypes.c_uint32), ("config", ctypes.c_uint64),
        ("sample_period", ctypes.c_uint64), ("sample_type", ctypes.c_uint64),
        ("read_format", ctypes.c_uint64), ("flags", ctypes.c_uint64), ("wakeup", ctypes.c_uint32),
        ("bp_type", ctypes.c_uint32), ("bp_addr", ctypes.c_uint64), ("bp_len", ctypes.c_uint64),
        ("rest", ctypes.c_uint64 * 8),
    ]  # fmt: skip


def free_breakpoints(tid):
    """How many of a thread's four debug registers are free; None where there are none to ask for."""
    number = {"x86_64": 298, "aarch64": 241}.get(os.uname().machine)
    libc = ctypes.CDLL(None, use_errno=True)
    attributes = _BreakpointAttributes()
    attributes.type, attributes.size = 5, ctypes.sizeof(attributes)  # PERF_TYPE_BREAKPOINT
    disabled, exclude_kernel, exclude_hv = 1, 1 << 5, 1 << 6
    attributes.flags = disabled | exclude_kernel | exclude_hv
    attributes.bp_type, attributes.bp_len = 2, 8  # HW_BREAKPOINT_W
    descriptors = []
    try:
        for register in range(4):
            attributes.bp_addr = 0x1000 + 64 * register  # disabled, and nothing is mapped there
            fd = libc.syscall(number, ctypes.byref(attributes), tid, -1, -1, 0)
            if fd < 0:
                break
            descriptors.append(fd)
        return len(descriptors)
    finally:
        for fd in descriptors:
            os.close(fd)


class Snapshot:
    """A target that stands still (it waits for a line): what of it a profiler could have changed."""

    def __init__(self, pid):
        self.pid = pid
        self.files = {path for *_, path in _mappings(pid) if path}
        self.threads = set(os.listdir(f"/proc/{pid}/task"))
        self.descriptors = self._descriptors(pid)
        self.breakpoints = {tid: free_breakpoints(int(tid)) for tid in self.threads}

    @staticmethod
    def _descriptors(pid):
        folder = f"/proc/{pid}/fd"
        return sorted((fd, os.readlink(f"{folder}/{fd}")) for fd in os.listdir(folder))

    def differences(self):
        """What is there now that was not before. The page in which the kernel executes probed instructions
        ([uprobes]) is the kernel's, and stays until the process ends or executes another program.
        """
        now, found = Snapshot(self.pid), []
        if more := now.files - self.files - {"[uprobes]"}:
            found.append(f"mapped: {sorted(more)}")
        if now.threads != self.threads:
            found.append(f"threads: {sorted(self.threads)}, now {sorted(now.threads)}")
        if now.descriptors != self.descriptors:
            found.append(f"descriptors: {sorted(set(now.descriptors) ^ set(self.descriptors))}")
        if now.breakpoints != self.breakpoints:
            found.append(f"free debug registers: {self.breakpoints}, now {now.breakpoints}")
        if changed := changed_code(self.pid):
            found.append(f"changed code: {changed[:4]}")
        return found


class Leftovers:
    """found() says, in words, what is left of all dynprof-bpf started with the marker in their environment."""

    def __init__(self, marker, temporary=None):
        self._marker, self._temporary = marker, temporary
        self._names = our_program_names()
        assert len(self._names) > 5, "no BPF programs found in bpf/"

    def _look(self, snapshot):
        found = []
        if programs := orphaned_programs(self._names):
            found.append(f"BPF programs without an owner: {programs}")
        if left := processes_of(self._marker):
            found.append(f"processes: {left}")
        if self._temporary and (files := sorted(map(str, Path(self._temporary).rglob("*")))):
            found.append(f"temporary files: {files[:8]}")
        if snapshot:
            found += snapshot.differences()
        return found

    def found(self, snapshot=None):
        """Empty if all is gone within the time that the kernel needs."""
        deadline = time.monotonic() + PATIENCE_S
        while found := self._look(snapshot):
            if time.monotonic() > deadline:
                break
            time.sleep(0.2)
        return found
