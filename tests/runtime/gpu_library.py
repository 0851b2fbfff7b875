"""The in-target GPU library seen from outside: its state in the target's memory, its USDT semaphores,
its dump file (cupti/wire.h), and targets that run on the fakes of tests/fakes."""

import collections
import ctypes
import os
import re
import select
import struct
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import support

LIBRARY = support.REPO / "build" / "libdynprof_cupti.so"
FAKES = support.REPO / "build" / "tests" / "fakes"
TARGET = FAKES / "gpu_target"
CUDA = Path("/usr/local/cuda-13.0")
FAKE_CUPTI = FAKES / "libcupti.so.13"

OFF, STARTING, ON, NO_CUPTI, TOO_OLD, BUSY, FAILED, NO_DUMP = range(8)
KERNEL, MEMCPY, MEMSET, SYNC, CALL, DEVICE = range(1, 7)
PROBES = ("gpu_launch", "gpu_launch_sampled", "gpu_batch", "gpu_name", "gpu_status")
# CUPTI's activity kinds, as the fake driver logs them.
KIND_OF_ACTIVITY = {10: KERNEL, 1: MEMCPY, 22: MEMCPY, 2: MEMSET, 38: SYNC}

_STATUS = struct.Struct("<4I11Q2I16x")
_STATUS_FIELDS = (
    "bytes code detail cupti_version calls records dropped_ring dropped_rate dropped_rate_records "
    "dropped_cupti dropped_dump unnamed implausible_times unknown_records foreign_buffers session "
    "refused_calls"
).split()
_RECORD = struct.Struct("<2I2Q4IQ2I72s")
_RECORD_FIELDS = (
    "kind correlation start end device context stream name graph_node graph thread rest"
).split()


class Row:
    def __init__(self, names, values):
        self.__dict__.update(zip(names, values, strict=True))

    def __repr__(self):
        return repr(self.__dict__)


def parse_status(data):
    return Row(_STATUS_FIELDS, _STATUS.unpack(data))


@dataclass
class Dump:
    """A dump file; `sessions` are the records between two statuses OFF."""

    pid: int
    records: list = field(default_factory=list)
    statuses: list = field(default_factory=list)
    sessions: list = field(default_factory=list)
    names: dict = field(default_factory=dict)

    def of_kind(self, *kinds):
        return [r for r in self.records if r.kind in kinds]

    calls = property(lambda self: self.of_kind(CALL))
    work = property(lambda self: self.of_kind(KERNEL, MEMCPY, MEMSET, SYNC))


def read_dump(path):
    data = Path(path).read_bytes()
    magic, record_bytes, pid, _ = struct.unpack_from("<8sIIQ", data)
    assert magic == b"DYNPGPU1" and record_bytes == 128
    dump = Dump(pid)
    at, session_names, session = 24, {}, []
    while at < len(data):
        kind, size, ident, _ = struct.unpack_from("<4I", data, at)
        body = data[at + 16 : at + 16 + size]
        assert len(body) == size, "truncated"
        at += 16 + size
        if kind == 1:
            for values in _RECORD.iter_unpack(body):
                record = Row(_RECORD_FIELDS, values)
                # A name comes before the first record that has it, in each session anew.
                assert record.name == 0 or record.name in session_names, record
                record.text = session_names.get(record.name)
                dump.records.append(record)
                session.append(record)
        elif kind == 2:
            session_names[ident] = dump.names[ident] = body.decode()
        elif kind == 3:
            dump.statuses.append(parse_status(body))
            if dump.statuses[-1].code == OFF:
                dump.sessions.append(session)
                session, session_names = [], {}
    return dump


# ---- the driver's own log ------------------------------------------------------------------------


@dataclass
class Truth:
    calls: dict = field(default_factory=dict)  # correlation -> (domain, cbid, tid)
    work: list = field(default_factory=list)  # Row

    def launches(self):
        return {c for c, (domain, cbid, _) in self.calls.items() if cbid in (211, 307, 652)}


def read_truth(path, waits=False):
    """waits: those of the GPU's side too, which the library is not told unless DYNPROF_GPU_WAITS is set."""
    truth = Truth()
    for line in Path(path).read_text().splitlines():
        what, *values = line.split(" ")
        if what == "call":
            correlation, *rest = map(int, values)
            truth.calls[correlation] = tuple(rest)
        else:
            names = "kind correlation stream start end graph graph_node name".split()
            row = Row(names, [*map(int, values[:7]), values[7]])
            row.kind = KIND_OF_ACTIVITY[row.kind]
            if waits or row.kind != SYNC:
                truth.work.append(row)
    return truth


# ---- symbols and notes ---------------------------------------------------------------------------


def symbols(path=LIBRARY):
    done = subprocess.run(
        ["readelf", "-sW", str(path)], capture_output=True, text=True, check=True
    )
    found = {}
    for line in done.stdout.splitlines():
        match = re.match(r"\s*\d+: ([0-9a-f]+)\s+\S+ \w+\s+\w+\s+\w+\s+\w+ (\S+)", line)
        if match:
            found[match[2]] = int(match[1], 16)
    return found


def notes(path=LIBRARY):
    """USDT probes by name: (file offset of the probe, file offset of the semaphore, arguments)."""
    text = subprocess.run(
        ["readelf", "-nW", str(path)], capture_output=True, text=True, check=True
    ).stdout
    loads = _loads(path)
    found = {}
    for match in re.finditer(
        r"Name: (\w+)\s+Location: (\w+), Base: \w+, Semaphore: (\w+)\s+Arguments: ([^\n]*)", text
    ):
        location, semaphore = (_file_offset(loads, int(match[i], 16)) for i in (2, 3))
        found[match[1]] = (location, semaphore, match[4].split())
    return found


def _loads(path):
    text = subprocess.run(
        ["readelf", "-lW", str(path)], capture_output=True, text=True, check=True
    ).stdout
    rows = re.findall(r"LOAD\s+(\w+)\s+(\w+)\s+\w+\s+(\w+)", text)
    return [tuple(int(value, 16) for value in row) for row in rows]


def _file_offset(loads, address):
    for offset, start, size in loads:
        if start <= address < start + size:
            return address - start + offset
    raise AssertionError(f"{address:#x} is in no segment")


# ---- a process that has the library --------------------------------------------------------------


class Inside:
    """The library inside a process, by /proc/PID/mem."""

    def __init__(self, pid):
        self.pid = pid
        self._symbols = symbols()
        self._base = self._find_base()

    def _find_base(self, timeout=20):
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            for line in Path(f"/proc/{self.pid}/maps").read_text().splitlines():
                fields = line.split()
                if len(fields) == 6 and fields[5] == str(LIBRARY) and fields[2] == "00000000":
                    return int(fields[0].split("-")[0], 16)
            time.sleep(0.01)
        raise AssertionError(f"{LIBRARY} is not mapped in {self.pid}")

    def _access(self, symbol, size=None, data=None):
        with open(f"/proc/{self.pid}/mem", "r+b" if data else "rb", buffering=0) as memory:
            memory.seek(self._base + self._symbols[symbol])
            return memory.write(data) if data else memory.read(size)

    def status(self):
        symbol = "dynprof_gpu_last_status"
        while True:
            data = self._access(symbol, _STATUS.size)
            if self._access(symbol, _STATUS.size) == data:
                return parse_status(data)

    def pushed(self):
        """How many records were pushed into the ring: its head, which has a cache line of its own (cupti/state.h)."""
        return int.from_bytes(self._access("_ZN13dynprof_cupti5stateE", 136)[128:], "little")

    def semaphore(self, probe="gpu_launch"):
        return int.from_bytes(self._access(f"dynprof_{probe}_semaphore", 2), "little")

    def await_no_listener(self, timeout=20):
        """The probes of a process that was killed are removed one after the other after it is gone."""
        deadline = time.monotonic() + timeout
        while any(self.semaphore(probe) for probe in PROBES):
            assert time.monotonic() < deadline, {probe: self.semaphore(probe) for probe in PROBES}
            time.sleep(0.002)

    def raise_to(self, count):
        """What the kernel does when a profiler sets a uprobe on gpu_launch, or takes it away."""
        self._access("dynprof_gpu_launch_semaphore", data=struct.pack("<H", count))

    def await_status(self, code, timeout=30, **fields):
        """The first status seen with this code and these fields."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            status = self.status()
            if status.code == code and all(getattr(status, k) == v for k, v in fields.items()):
                return status
            time.sleep(0.002)
        raise AssertionError(f"no status {code} {fields} in {timeout} s: {self.status()}")

    def thread(self, timeout=20):
        """The tid of the library's own thread, which names itself once it runs."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            for task in Path(f"/proc/{self.pid}/task").iterdir():
                if (task / "comm").read_text().strip() == "dynprof-gpu":
                    return int(task.name)
        raise AssertionError(f"{self.pid} has no thread dynprof-gpu")


class GpuTarget:
    """tests/fakes/gpu_target: do("launch 10") returns its answer."""

    def __init__(self, *verbs, cupti=FAKE_CUPTI, library=LIBRARY, env=None, arguments=None):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("DYNPROF_")}
        if library:
            environment["CUDA_INJECTION64_PATH"] = str(library)
        environment.update({k: str(v) for k, v in (env or {}).items()})
        self.process = subprocess.Popen(
            arguments or [TARGET, cupti or "-", *verbs],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        self._pending = b""
        self.line("ready")
        self.inside = Inside(self.pid) if library else None

    @property
    def pid(self):
        return self.process.pid

    def line(self, verb, timeout=60):
        """The rest of the next line, which must begin with the verb."""
        deadline = time.monotonic() + timeout
        while b"\n" not in self._pending:
            left = deadline - time.monotonic()
            ready, _, _ = select.select([self.process.stdout], [], [], max(left, 0))
            more = os.read(self.process.stdout.fileno(), 65536) if ready else b""
            if not more:
                self.process.kill()
                out, err = self.process.communicate()
                why = f"said nothing in {timeout} s" if not ready else "ended"
                raise AssertionError(f"the target {why}, expected {verb!r}: {err.decode()}")
            self._pending += more
        text, self._pending = self._pending.split(b"\n", 1)
        first, _, rest = text.decode().partition(" ")
        assert first == verb, f"expected {verb!r}, got {text.decode()!r}"
        return rest

    def tell(self, line):
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def do(self, line, timeout=60):
        self.tell(line)
        return self.line(line.split()[0], timeout)

    def attach(self, count=1, **fields):
        self.inside.raise_to(count)
        return self.inside.await_status(ON, **fields)

    def detach(self, **fields):
        self.inside.raise_to(0)
        return self.inside.await_status(OFF, **fields)

    def exit(self, rc=0, timeout=30):
        """Lets it end by exit(); returns what it wrote to stderr."""
        self.tell(f"exit {rc}")
        _, err = self.process.communicate(timeout=timeout)
        assert self.process.returncode == rc, (self.process.returncode, err.decode())
        return err.decode()

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            pipe.close()
        self.process.wait()


# ---- uprobes without BPF -------------------------------------------------------------------------


class Uprobe:
    """Counts a probe's hits in all processes and raises its semaphore, by perf_event_open."""

    PMU = Path("/sys/bus/event_source/devices/uprobe")

    def __init__(self, probe, pid):
        offset, semaphore, _ = notes()[probe]
        path = ctypes.create_string_buffer(str(LIBRARY).encode())
        # struct perf_event_attr: type, size, config (the semaphore's offset in its upper half), …,
        # config1 the path, config2 the offset.
        attributes = bytearray(128)
        kind = int((self.PMU / "type").read_text())
        struct.pack_into("<IIQ", attributes, 0, kind, 128, semaphore << 32)
        struct.pack_into("<QQ", attributes, 56, ctypes.addressof(path), offset)
        buffer = (ctypes.c_char * 128).from_buffer(attributes)
        libc = ctypes.CDLL(None, use_errno=True)
        number = {"x86_64": 298, "aarch64": 241}[os.uname().machine]
        self._fd = libc.syscall(number, buffer, pid, -1, -1, 8)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def hits(self):
        return int.from_bytes(os.read(self._fd, 8), "little")

    def close(self):
        os.close(self._fd)


# ---- for the tests ---------------------------------------------------------------------------------


def unavailable(reason):
    """CUDA's toolkit is no dependency of the project: without it these tests are skipped, in CI too."""
    pytest.skip(reason)


@pytest.fixture
def start():
    """start(**options): a GpuTarget, killed at the end."""
    targets = []

    def begin(*arguments, **options):
        targets.append(GpuTarget(*arguments, **options))
        return targets[-1]

    yield begin
    for target in targets:
        target.kill()


@pytest.fixture
def dumping(start, tmp_path):
    """dumping(**env): a target that writes what a profiler would get into `target.dump_path`."""

    def begin(mode="attached", env=None, **options):
        path = tmp_path / f"dump-{len(list(tmp_path.iterdir()))}"
        wanted = {"DYNPROF_GPU_DUMP": path, "DYNPROF_GPU_DUMP_MODE": mode, **(env or {})}
        target = start(env=wanted, **options)
        target.dump_path = path
        target.log_path = tmp_path / f"{path.name}.log"
        return target

    return begin


def finish(target, waits=False):
    """Detaches; what was handed over, and what really happened."""
    target.detach()
    target.do(f"log {target.log_path}")
    return read_dump(target.dump_path), read_truth(target.log_path, waits)


def assert_same(dump, truth):
    """Every call and all work of the log is in the dump exactly once, and nothing else."""
    assert sorted(r.correlation for r in dump.calls) == sorted(truth.calls)
    assert {r.correlation: r.thread for r in dump.calls} == {
        c: tid for c, (_, _, tid) in truth.calls.items()
    }
    told = collections.Counter(
        (r.kind, r.correlation, r.stream, r.start, r.end, r.graph, r.graph_node) for r in dump.work
    )
    real = collections.Counter(
        (w.kind, w.correlation, w.stream, w.start, w.end, w.graph, w.graph_node)
        for w in truth.work
    )
    assert told == real


def assert_nothing_lost(status):
    lost = {k: v for k, v in vars(status).items() if re.match("dropped|un|impl|foreign|refused", k)}
    assert not any(lost.values()), lost
