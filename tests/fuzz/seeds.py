#!/usr/bin/env python3
"""Makes the seeds of the fuzz targets from what this machine has: files, maps and memory that parsers
meet in real use. `seeds.py DIRECTORY` writes DIRECTORY/TARGET/NAME for every target in tests/fuzz, and
copies what lies in tests/fuzz/corpus/TARGET. A line names each source that this machine lacks."""

import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent.parent
MOST_BYTES = 60_000  # of one seed: larger ones are slow and change little

# Runs in each interpreter that is found, and prints "NAME HEX" lines. memory_image.h has the format.
DUMP = r'''
import collections, ctypes, os, struct, sys, threading, types
minor = sys.version_info[1]
mem = os.open("/proc/self/mem", os.O_RDONLY)
ranges = []
for line in open("/proc/self/maps"):
    span, rights = line.split()[:2]
    if "r" in rights and "[v" not in line:
        ranges.append(tuple(int(x, 16) for x in span.split("-")))

def end_of(address):
    for low, high in ranges:
        if low <= address < high:
            return high
    return 0

def image(kind, root, depth, first=512, most=48000):
    """What is reached from `root` by pointers, breadth first."""
    pieces, queue, total = {}, [(root, depth, first)], 0
    while queue and total < most:
        address, left, size = queue.pop(0)
        if address in pieces:
            continue
        high = end_of(address)
        if not high:
            continue
        data = os.pread(mem, min(size, high - address, most - total), address)
        pieces[address] = data
        total += len(data) + 12
        if left:
            for word in struct.unpack(f"<{len(data) // 8}Q", data[: len(data) // 8 * 8]):
                if word % 8 == 0 and end_of(word):
                    queue.append((word, left - 1, 256))
    head = struct.pack("<BB6xQQQQQ", minor - 10, kind, root, id(str), id(types.CodeType), id(None), id(int))
    return head + b"".join(struct.pack("<QI", a, len(d)) + d for a, d in sorted(pieces.items()))

class Slots:
    __slots__ = ("name", "other")
class Plain:
    pass
def function(a, b=1, *, c=None):
    """A docstring."""
    total = [x for x in range(a) if x]
    try:
        return lambda: (total, b, c)
    finally:
        del a

slots, plain = Slots(), Plain()
slots.name, slots.other = "n", (1, 2)
plain.name, plain.x = "\u20ac", 2 ** 70
point = collections.namedtuple("Point", "name y")("p", 2)
samples = {
    "str": "text", "wide": "\U0001f600 wide", "bytes": b"bytes", "int": 2 ** 62, "float": 1.5,
    "tuple": (1, "a", None), "list": [1, [2], "b"], "dict": {"__name__": "x", 1: 2},
    "set": {1, 2, "c"}, "deque": collections.deque([1, 2, 3], maxlen=5), "slots": slots,
    "plain": plain, "named": point, "module": sys, "type": Slots, "bool": True,
}
def out(name, data):
    print(name, data.hex())
for name, value in samples.items():
    out(f"target_objects/{name}-0-3.{minor}", image(0, id(value), 2, most=12000))
    out(f"target_objects/{name}-1-3.{minor}", image(1, id(value), 3, most=24000))
for number, code in enumerate([function.__code__, threading.Thread.run.__code__, collections.namedtuple.__code__]):
    out(f"target_objects/code{number}-3.{minor}", image(2, id(code), 3))
api = ctypes.pythonapi
api.PyThreadState_Get.restype = ctypes.c_void_p
api.PyInterpreterState_Main.restype = ctypes.c_void_p
tstate, interpreter = api.PyThreadState_Get(), api.PyInterpreterState_Main()
def deep(n):
    if n:
        return deep(n - 1)
    out(f"target_objects/thread-3.{minor}", image(4, tstate, 4))
    out(f"target_objects/torch-3.{minor}", image(5, interpreter, 3, first=20000))
    try:
        runtime = ctypes.addressof(ctypes.c_char.in_dll(api, "_PyRuntime"))
    except ValueError:
        return
    out(f"target_objects/runtime-3.{minor}", image(3, runtime, 4, first=1024))
    out(f"target_objects/offsets-3.{minor}", image(6, runtime, 0, first=1024))
deep(10)

import argparse, ast, asyncio, dataclasses, json, logging, typing
codes = []
def collect(code):
    codes.append(code)
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            collect(const)
for module in (argparse, ast, dataclasses, json.decoder, logging, typing):
    for value in vars(module).values():
        if isinstance(value, types.FunctionType):
            collect(value.__code__)
        elif isinstance(value, type):
            for method in vars(value).values():
                if isinstance(method, types.FunctionType):
                    collect(method.__code__)
for number, code in enumerate(sorted(set(codes), key=lambda c: len(c.co_code))[::40]):
    table = code.co_linetable
    out(f"line_table/{number}-3.{minor}", struct.pack("<Bii", minor - 8, code.co_firstlineno, 5) + table)
for what in ("maps", "smaps"):
    text = open(f"/proc/self/{what}", "rb").read()
    for part in range(0, min(len(text), 24000), 6000):  # short ones run many times a second
        out(f"proc_maps/{what}-3.{minor}-{part}", text[part : part + 6000])
'''

# Traced by the interpreter itself (3.12 and later): a real perf map.
PERF = "import json, argparse; [json.dumps({str(i): [i]}) for i in range(9)]; argparse.ArgumentParser().format_help()"

INLINED = r'''
namespace a { template <class T> inline T twice(T x) { return x + x; }
inline int add(int x, int y) { int z = twice(x); return z * y; }
struct S { int f(int x) const { return add(x, 3) + twice(v); } int v; }; }
int g(int n) { a::S s{n}; int sum = 0; for (int i = 0; i < n; i++) sum += s.f(i); return sum; }
int main(int argc, char**) { return g(argc); }
'''


class Seeds:
    def __init__(self, folder):
        self.folder = folder
        self.missing = []

    def put(self, target, name, data):
        if not 0 < len(data) <= MOST_BYTES + 1:
            return
        path = self.folder / target / re.sub(r"[^A-Za-z0-9_.-]", "_", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def lack(self, what):
        self.missing.append(what)


def interpreters():
    places = [*Path("/root/.pyenv/versions").glob("3.1*/bin/python3"),
              *(Path.home() / ".pyenv/versions").glob("3.1*/bin/python3"),
              *Path("/usr/bin").glob("python3.1[0-9]"), *Path("/usr/local/bin").glob("python3.1[0-9]")]
    found = {}
    for path in places:
        minor = re.search(r"3\.(1[0-3])", str(path))
        if minor and os.access(path, os.X_OK):
            found.setdefault(minor.group(1), path)
    return found


def from_interpreters(seeds):
    found = interpreters()
    for minor in ("10", "11", "12", "13"):
        if minor not in found:
            seeds.lack(f"CPython 3.{minor}")
    for minor, python in found.items():
        done = subprocess.run([python, "-I", "-c", DUMP], capture_output=True, text=True, timeout=120)
        if done.returncode != 0:
            seeds.lack(f"objects of {python}: {done.stderr[-300:]}")
            continue
        for line in done.stdout.splitlines():
            name, _, data = line.partition(" ")
            seeds.put(*name.split("/", 1), bytes.fromhex(data))
        if int(minor) >= 12:
            process = subprocess.Popen([python, "-I", "-X", "perf", "-c", PERF], stdout=subprocess.DEVNULL)
            process.wait(60)
            perf_map = Path(f"/tmp/perf-{process.pid}.map")
            if perf_map.exists():
                text = perf_map.read_bytes()
                for part in range(0, min(len(text), 24_000), 6_000):
                    seeds.put("perf_map", f"python-3.{minor}-{part}", text[part : part + 6_000])
                perf_map.unlink()


def sections(data):
    """(name, bytes) of a 64-bit little-endian ELF file."""
    if data[:4] != b"\x7fELF" or data[4] != 2:
        return
    offset, = struct.unpack_from("<Q", data, 0x28)
    size, count, names = struct.unpack_from("<HHH", data, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, offset + i * size) for i in range(count)]
    strings = data[headers[names][4] : headers[names][4] + headers[names][5]]
    for header in headers:
        name = strings[header[0] : strings.index(b"\0", header[0])].decode("ascii", "replace")
        if header[1] != 8:  # SHT_NOBITS
            yield name, data[header[4] : header[4] + header[5]]


def libraries():
    """Files with C++ frames, C frames and an interpreter loop: large, of which parts are taken."""
    places = ["/usr/lib/x86_64-linux-gnu/libpython3.*.so.1.0", "/usr/bin/python3.11",
              "/usr/lib/x86_64-linux-gnu/libstdc++.so.6", "/usr/lib/x86_64-linux-gnu/libc.so.6"]
    for place in places:
        yield from sorted(Path("/").glob(place.lstrip("/")))[:1]
    for venv in (os.environ.get("DYNPROF_VENV", ""), str(ROOT / ".venv")):
        if venv:
            yield from sorted(Path(venv).glob("lib/python3*/site-packages/torch/lib/libtorch_python.so"))[:1]
            return


def from_libraries(seeds):
    seen_torch = False
    for path in libraries():
        seen_torch |= "torch" in path.name
        for name, data in sections(path.read_bytes()):
            if name == ".eh_frame":  # whole entries from its start, and from the middle of it
                seeds.put("unwind_table", f"{path.name}-begin", b"\x01" + data[:8192])
                seeds.put("unwind_table", f"{path.name}-long", b"\x01" + data[:40_000])
                middle = len(data) // 2
                seeds.put("unwind_table", f"{path.name}-middle", b"\x01" + data[:24] + data[middle : middle + 8192])
            if name == ".dynstr":
                for number, symbol in enumerate([s for s in data.split(b"\0") if s.startswith(b"_Z")][::400][:40]):
                    seeds.put("native_names", f"{path.name}-{number}", b"\x01" + symbol)
    if not seen_torch:
        seeds.lack("libtorch_python.so")


def small_elf_files():
    folders = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/python3.11/lib-dynload"]
    files = [p for folder in folders for p in Path(folder).glob("*.so*") if p.is_file() and not p.is_symlink()]
    return sorted((p for p in files if 8000 < p.stat().st_size < MOST_BYTES), key=lambda p: p.stat().st_size)


def put_elf(seeds, name, data):
    seeds.put("native_names", name, b"\x00" + data)
    seeds.put("unwind_table", name, b"\x00" + data)
    for kind in range(4):
        seeds.put("elf_image", f"{name}-{kind}", bytes([kind]) + data)
    seeds.put("gpu", name, b"\x03\x00" + data)


def from_elf_files(seeds):
    files = small_elf_files()
    for path in files[:: max(1, len(files) // 8)]:
        put_elf(seeds, path.name, path.read_bytes())
    library = ROOT / "build" / "libdynprof_cupti.so"  # has USDT probes
    if library.exists():
        with tempfile.TemporaryDirectory() as folder:
            stripped = Path(folder) / "x.so"
            subprocess.run(["strip", "-o", stripped, library], check=True)
            put_elf(seeds, library.name, stripped.read_bytes())
    else:
        seeds.lack("build/libdynprof_cupti.so")


def from_compiler(seeds):
    """DWARF of three versions, linked and not, compressed and not."""
    compiler = shutil.which("g++")
    if not compiler:
        seeds.lack("g++")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "a.cpp").write_text(INLINED)
        for number, flags in enumerate([["-gdwarf-5", "-nostdlib", "-shared", "-fPIC"], ["-gdwarf-4", "-c"],
                                        ["-gdwarf-3", "-nostdlib", "-shared", "-fPIC"],
                                        ["-gdwarf-5", "-gz", "-nostdlib", "-shared", "-fPIC"]]):
            out = folder / f"out{number}"
            done = subprocess.run([compiler, "-O2", *flags, "-o", out, folder / "a.cpp"], capture_output=True)
            if done.returncode != 0:
                seeds.lack(f"DWARF made with {flags}")
                continue
            seeds.put("dwarf_places", f"inlined{number}", b"\x02" + out.read_bytes())
            put_elf(seeds, f"inlined{number}", out.read_bytes())


def from_profiler(seeds):
    """A recording of a short program, where this user may record."""
    binary = ROOT / "build" / "dynprof-bpf"
    if not binary.exists() or os.geteuid() != 0:
        seeds.lack("a recording made here (needs root and build/dynprof-bpf)")
        return
    with tempfile.TemporaryDirectory() as name:
        out = Path(name) / "out"
        done = subprocess.run(
            [binary, "record", "-q", "-F", "499", "-o", out, "--", "/usr/bin/python3", "-c",
             "import json, time\nfor i in range(9): json.dumps(list(range(20000))); time.sleep(0.01)"],
            capture_output=True, text=True, timeout=120,
        )
        if done.returncode != 0:
            seeds.lack(f"a recording made here: {done.stderr[-200:]}")
            return
        seeds.put("recording", "short-program", (out / "recording.dynprof").read_bytes())


def main():
    seeds = Seeds(Path(sys.argv[1]))
    shutil.rmtree(seeds.folder, ignore_errors=True)
    for path in sorted((FOLDER / "corpus").glob("*/*")):
        seeds.put(path.parent.name, f"corpus-{path.name}", path.read_bytes())
    for source in (from_interpreters, from_libraries, from_elf_files, from_compiler, from_profiler):
        source(seeds)
    targets = sorted(p.name[: -len("_fuzz.cpp")] for p in FOLDER.glob("*_fuzz.cpp"))
    for target in targets:
        files = list((seeds.folder / target).glob("*"))
        print(f"{target}: {len(files)} seeds, {sum(f.stat().st_size for f in files):,} bytes")
        if not files:  # one that a custom mutator replaces by an example of its own
            seeds.put(target, "nothing", b"\0")
    for what in seeds.missing:
        print(f"missing: {what}")


if __name__ == "__main__":
    main()
