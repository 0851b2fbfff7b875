"""libdynprof_cupti.so in processes that run on the fakes of tests/fakes: no GPU, no BPF.

What the library hands over is held against the fake driver's own log of calls and GPU work.
tests/runtime/test_cupti_life.py has how it goes on and off, and what it must survive.
"""

import ctypes
import os
import re
import signal
import struct
import subprocess
import time
from pathlib import Path

import pytest

import gpu_library as gpu
import support
from gpu_library import CUDA, assert_nothing_lost, assert_same, dumping, finish, start, unavailable

__all__ = ["dumping", "start"]  # fixtures


# ---- the file ------------------------------------------------------------------------------------


def readelf(*options):
    return subprocess.run(
        ["readelf", *options, str(gpu.LIBRARY)], capture_output=True, text=True, check=True
    ).stdout


def test_needs_libc_only():
    assert re.findall(r"\(NEEDED\).*\[(.*)\]", readelf("-dW")) == ["libc.so.6"]
    assert "NODELETE" in readelf("-dW")
    undefined = re.findall(r" UND (\S+)", readelf("--dyn-syms", "-W"))
    foreign = [s for s in undefined if re.match(r"_Z|__cxa_(?!atexit|finalize)|__gxx|_Unwind|cu", s)]
    assert not foreign


def test_exports_one_function():
    defined = re.findall(
        r"(?:GLOBAL|WEAK)\s+DEFAULT\s+\d+ (\S+)", readelf("--dyn-syms", "-W")
    )
    assert defined == ["InitializeInjection"]


def test_runs_with_old_glibc():
    versions = {tuple(map(int, v.split("."))) for v in re.findall(r"GLIBC_([\d.]+)", readelf("-VW"))}
    assert max(versions) <= (2, 17), versions


def test_usdt_notes():
    notes = gpu.notes()
    assert set(notes) == {*gpu.PROBES, "gpu_tables"}
    assert notes.pop("gpu_tables")[2] == []  # never fires; its "semaphore" is a table
    # One argument per field of wire.h, in registers or constants.
    assert {name: len(arguments) for name, (_, _, arguments) in notes.items()} == {
        "gpu_launch": 4,
        "gpu_launch_sampled": 4,
        "gpu_batch": 2,
        "gpu_name": 3,
        "gpu_status": 4,
    }
    for _, semaphore, arguments in notes.values():
        assert semaphore > 0
        assert all(re.fullmatch(r"-?[48]@[%$][\w-]+", a) for a in arguments), arguments


def test_declarations_agree_with_cuda_headers():
    headers = CUDA / "include"
    if not (headers / "cupti.h").exists():
        unavailable(f"no CUDA headers in {headers}")
    source = support.REPO / "tests" / "fakes" / "check_abi.cpp"
    done = subprocess.run(
        ["g++", "-std=c++20", "-fsyntax-only", f"-I{support.REPO}", f"-I{headers}", source],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_call_numbers_agree_with_cuda_headers():
    headers = CUDA / "include"
    if not (headers / "cupti_runtime_cbid.h").exists():
        unavailable(f"no CUDA headers in {headers}")
    real = {}
    for domain in ("RUNTIME", "DRIVER"):
        text = (headers / f"cupti_{domain.lower()}_cbid.h").read_text()
        for name, number in re.findall(rf"CUPTI_{domain}_TRACE_CBID_(\w+)\s*=\s*(\d+)", text):
            plain = re.sub(r"_v\d{4,}$", "", name) if domain == "RUNTIME" else name
            real[domain, int(number)] = plain
    table = (support.REPO / "cupti" / "calls_table.h").read_text()
    ours = re.findall(r'^DYNPROF_CALL\((\w+), (\d+), "(\w+)", (\w+)\)', table, re.M)
    assert len(ours) > 150
    assert not [row for row in ours if real.get((row[0], int(row[1]))) != row[2]]


# ---- idle ----------------------------------------------------------------------------------------


def test_idle_library_only_has_a_sleeping_thread(start):
    target = start()
    target.do("launch 100")
    assert target.inside.thread() != target.pid
    assert sorted(target.do("threads").split()) == ["dynprof-gpu", "gpu_target"]
    assert target.inside.status().code == gpu.OFF
    assert target.inside.status().session == 0
    assert target.exit() == ""


def test_all_signals_are_blocked_in_the_thread(start):
    target = start()
    status = Path(f"/proc/{target.pid}/task/{target.inside.thread()}/status").read_text()
    blocked = int(re.search(r"SigBlk:\s*(\w+)", status)[1], 16)
    # glibc's own 32 and 33 stay open: setuid() waits for each thread to take the latter.
    assert blocked | 1 << 8 | 1 << 18 | 3 << 31 == 2**64 - 1
    assert blocked >> 31 & 3 == 0
    for number in (signal.SIGINT, signal.SIGUSR1, signal.SIGPROF):
        assert blocked >> (number - 1) & 1


def test_preloaded_into_a_program_without_cuda_it_is_silent():
    environment = {**os.environ, "LD_PRELOAD": str(gpu.LIBRARY)}
    done = subprocess.run(["ls", "/"], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


# ---- what is handed over -------------------------------------------------------------------------


@pytest.mark.parametrize("waits", [0, 1])
def test_every_call_and_all_work_is_handed_over(dumping, waits):
    target = dumping(env={"DYNPROF_GPU_WAITS": waits})
    target.attach()
    for line in ("launch 50", "driver 30", "copy 30", "peer 5", "set 7", "graph 4 3", "names 40"):
        target.do(line)
    target.do("storm 4 3000 0")
    target.do("sync")
    dump, truth = finish(target, waits)
    assert_same(dump, truth)
    assert bool(dump.of_kind(gpu.SYNC)) == waits
    status = dump.statuses[-1]
    assert_nothing_lost(status)
    assert status.calls == len(truth.calls)
    assert status.records == len(dump.records)
    assert len({r.stream for r in dump.of_kind(gpu.KERNEL)}) == 5
    assert target.exit() == ""


def test_fields_of_the_records(dumping):
    target = dumping(env={"FAKE_GPU_KERNEL_NS": 4321, "DYNPROF_GPU_WAITS": 1})
    target.attach()
    for line in ("launch 1", "copy 3", "peer 1", "set 1", "graph 1 2", "sync"):
        target.do(line)
    dump, _ = finish(target)
    plain, *nodes = sorted(dump.of_kind(gpu.KERNEL), key=lambda r: r.correlation)
    assert plain.text == "_Z5plainPf"
    assert plain.end - plain.start == 4321
    fields = struct.unpack("<3i3i3I7IQ", plain.rest)
    assert fields[:6] == (4, 2, 1, 128, 1, 1)
    assert fields[9:12] == (32, 0, 64)  # registers, static and dynamic shared memory
    assert (plain.device, plain.context, plain.graph) == (0, 1, 0)
    assert [(n.graph, n.graph_node & 0xFFFFFFFF) for n in nodes] == [(77, 1), (77, 2)]
    assert len({n.correlation for n in nodes}) == 1

    copies = sorted(dump.of_kind(gpu.MEMCPY), key=lambda r: r.correlation)
    kinds = [struct.unpack_from("<Q3I", c.rest) for c in copies]
    assert kinds == [(4096, 1, 1, 3), (4096, 2, 3, 1), (4096, 8, 3, 3), (512, 10, 3, 3)]
    assert struct.unpack_from("<5I", copies[3].rest, 28) == (1, 0, 1, 1, 2)  # between two devices
    (cleared,) = dump.of_kind(gpu.MEMSET)
    assert struct.unpack_from("<Q3I", cleared.rest) == (256, 0, 0, 3)

    calls = {r.correlation: r for r in dump.calls}
    launch = calls[plain.correlation]
    assert (launch.text, launch.thread) == ("cudaLaunchKernel", target.pid)
    assert struct.unpack_from("<2Ii", launch.rest) == (2 << 24 | 211, 1, 0)
    assert launch.start <= plain.start
    assert calls[nodes[0].correlation].text == "cudaGraphLaunch"
    assert calls[copies[3].correlation].text == "cuMemcpyPeerAsync"
    (sync,) = dump.of_kind(gpu.SYNC)
    assert struct.unpack_from("<I", sync.rest) == (4,)
    assert calls[sync.correlation].text == "cudaDeviceSynchronize"

    (device,) = dump.of_kind(gpu.DEVICE)
    assert device.text == "Fake GPU"
    assert struct.unpack_from("<Q11I", device.rest)[:9] == (
        8 << 30, 9, 0, 1024, 2048, 65536, 65536, 32, 132
    )  # fmt: skip
    assert device.rest[52:68] == bytes(range(1, 17))  # its UUID


def test_nothing_is_lost_at_fifty_thousand_launches_a_second(dumping):
    target = dumping()
    target.attach()
    target.do("storm 2 75000 40")
    target.do("sync")
    dump, truth = finish(target)
    assert len(truth.launches()) == 150_000
    assert_nothing_lost(dump.statuses[-1])
    assert_same(dump, truth)


def test_records_that_cupti_loses_are_counted(dumping):
    target = dumping(env={"FAKE_CUPTI_DROP_EVERY": 10})
    target.attach()
    target.do("storm 2 5000 0")
    dump, truth = finish(target)
    assert len(dump.calls) == len(truth.calls) == 10_002
    assert len(dump.work) + dump.statuses[-1].dropped_cupti == len(truth.work)
    assert dump.statuses[-1].dropped_cupti == len(truth.work) // 10


class Stopped:
    """Holds one thread of another process still."""

    SEIZE, INTERRUPT, DETACH, STEP = 0x4206, 0x4207, 17, 9

    def __init__(self, tid):
        self._libc, self._tid = ctypes.CDLL(None, use_errno=True), tid
        self._ptrace(self.SEIZE)
        self._ptrace(self.INTERRUPT)
        self._wait()

    def _ptrace(self, request):
        assert self._libc.ptrace(request, self._tid, None, None) == 0

    def _wait(self):
        os.waitpid(self._tid, 0x40000000)  # __WALL

    def step(self):
        """One instruction."""
        self._ptrace(self.STEP)
        self._wait()

    def release(self):
        self._ptrace(self.DETACH)


def test_records_for_which_there_is_no_room_are_counted(dumping):
    """The library's thread is held still until its ring is full."""
    target = dumping()
    target.attach()
    held = Stopped(target.inside.thread())
    target.do("storm 2 60000 0")
    target.do("sync")
    held.release()
    dump, truth = finish(target)
    status = dump.statuses[-1]
    happened = len(truth.calls) + len(truth.work)
    records = len(dump.calls) + len(dump.work)
    assert status.dropped_ring > 0
    assert records + status.dropped_ring == happened
    assert status.calls == len(truth.calls)
    # What was handed over is true, each once.
    assert {r.correlation for r in dump.calls} <= set(truth.calls)
    assert len({r.correlation for r in dump.calls}) == len(dump.calls)


def held_in_a_push(target):
    """A thread that launches kernels, held still where it has its place in the ring, and has not filled it."""
    threads = [int(task.name) for task in Path(f"/proc/{target.pid}/task").iterdir()]
    target.do("background 1 1000")
    (thread,) = [int(task.name) for task in Path(f"/proc/{target.pid}/task").iterdir() if int(task.name) not in threads]
    held = Stopped(thread)
    pushed = target.inside.pushed()
    target.do("launch 10")
    assert target.inside.pushed() == pushed + 10
    for _ in range(100_000):
        if target.inside.pushed() > pushed + 10:
            return held
        held.step()
    raise AssertionError("the thread pushed nothing")


def test_records_behind_one_that_is_incomplete_are_waited_for(dumping):
    """A thread may be preempted in the middle of a push; the end of the session waits for it."""
    target = dumping()
    target.attach()
    held = held_in_a_push(target)
    target.do("launch 100")
    target.inside.raise_to(0)
    time.sleep(0.1)
    held.release()
    target.inside.await_status(gpu.OFF)
    dump = gpu.read_dump(target.dump_path)
    assert dump.statuses[-1].dropped_ring == 0
    assert sum(r.thread == target.pid for r in dump.calls) == 110


def test_records_that_never_became_complete_are_counted(dumping):
    target = dumping()
    target.attach()
    held = held_in_a_push(target)
    target.do("launch 100")
    target.detach(session=1)
    held.release()
    target.attach(session=2)
    target.do("launch 7")
    target.detach(session=2)
    dump = gpu.read_dump(target.dump_path)
    first, second = (status for status in dump.statuses if status.code == gpu.OFF)
    assert first.dropped_ring == 101
    assert second.dropped_ring == 0
    calls = [[r for r in session if r.kind == gpu.CALL and r.thread == target.pid] for session in dump.sessions]
    assert [len(of_session) for of_session in calls] == [10, 7]


def test_rate_cap_leaves_out_calls_and_what_they_ran(dumping):
    target = dumping(env={"DYNPROF_GPU_MAX_CALLS_PER_SECOND": 10})
    target.attach()
    target.do("storm 2 5000 0")
    dump, truth = finish(target)
    status = dump.statuses[-1]
    assert len(dump.calls) == status.calls
    assert status.calls + status.dropped_rate == len(truth.calls)
    assert len(dump.work) + status.dropped_rate_records == len(truth.work)
    assert status.calls > 0 and status.dropped_rate > 0 and status.dropped_rate_records > 0
    assert {r.correlation for r in dump.work} <= {r.correlation for r in dump.calls}


def test_many_names(dumping):
    target = dumping()
    target.attach()
    target.do("names 3000")
    target.do("sync")
    dump, _ = finish(target)
    assert sorted(r.text for r in dump.of_kind(gpu.KERNEL)) == sorted(
        f"_Z6named_{i}Pf" for i in range(3000)
    )


# ---- the dump file -------------------------------------------------------------------------------


def test_dump_is_private_and_made_new(dumping, start, tmp_path):
    target = dumping(mode="always")
    target.inside.await_status(gpu.ON)
    assert target.dump_path.stat().st_mode & 0o777 == 0o600
    target.exit()
    before = target.dump_path.read_bytes()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere")
    for path in (target.dump_path, link):
        other = start(env={"DYNPROF_GPU_DUMP": path})
        other.inside.await_status(gpu.NO_DUMP, detail=17)
        other.do("launch 10")
        assert other.exit() == ""
    assert target.dump_path.read_bytes() == before
    assert not (tmp_path / "elsewhere").exists()


def test_dump_has_a_limit(dumping):
    target = dumping(env={"DYNPROF_GPU_DUMP_BYTES": 100_000})
    target.attach()
    target.do("launch 2000")
    target.do("sync")
    status = target.detach()
    assert target.dump_path.stat().st_size <= 100_000
    dump = gpu.read_dump(target.dump_path)
    assert len(dump.records) + status.dropped_dump == status.records
    assert status.dropped_dump > 0


def test_a_descriptor_that_became_another_file_is_not_written_to(dumping):
    target = dumping()
    target.attach()
    target.do("closefds")
    target.do("launch 100")
    target.do("sync")
    status = target.detach()
    assert status.dropped_dump == status.records == 202
    assert target.exit() == ""
