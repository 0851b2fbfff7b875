"""Files that the target maps or names are the target's: they may lie about their own tables, be cut off while they
are read, or be something else than a file. The profiler runs as root and must come to no harm by them."""

import re
import struct
import subprocess

import pytest

import samples
import support

pytestmark = pytest.mark.root_bpf

FAKE_TORCH = support.REPO / "tests" / "programs" / "fake_torch"
SHT_DYNSYM = 11
PROBED = (
    "dynamo_eval_custom_code",
    "_pytorch_record_function_exit",
    "_ZN5torch8autograd6PyNode5applyEOSt6vectorIN2at6TensorESaIS4_EE",
    "_ZN5torch8autograd6PyNode16to_variable_listEPK7_objectRKSt6vectorIbSaIbEE",
    "_ZN5torch18throw_python_errorEv",
)

# Loads torch's library; the sources of the libraries export what the profiler probes.
LIBRARY_USER = """
import ctypes, sys
sys.path.insert(0, {fake_torch!r})
import torch
library = ctypes.CDLL({library!r})
print("ready", flush=True)
while True:
    sum(i * i for i in range(1000))
    library.dynamo_eval_custom_code(0, 0, 0, 0)
"""


def build_library(folder, name):
    source = folder / "library.c"
    source.write_text("".join(f"long {name}(long x) {{ return x + 1; }}\n" for name in PROBED))
    library = folder / name
    subprocess.run(["gcc", "-shared", "-fPIC", "-s", "-o", library, source], check=True)
    return library


def change_symbol_section(library, **changes):
    """Writes other values into the header of .dynsym; the dynamic loader does not read it."""
    places = {"offset": 24, "size": 32, "link": 40, "entry_size": 56}
    data = bytearray(library.read_bytes())
    at, size, count = struct.unpack_from("<Q", data, 40)[0], *struct.unpack_from("<HH", data, 58)
    for header in range(at, at + size * count, size):
        if struct.unpack_from("<I", data, header + 4)[0] == SHT_DYNSYM:
            for what, value in changes.items():
                form = "<I" if what == "link" else "<Q"
                struct.pack_into(form, data, header + places[what], value)
    library.write_bytes(data)


@pytest.fixture
def record_library(dynprof, spawn, tmp_path, venv_python):
    def record(library):
        source = LIBRARY_USER.format(fake_torch=str(FAKE_TORCH), library=str(library))
        target = spawn([venv_python, "-c", source])
        done = dynprof.run("--pid", target.pid, "-F", "99", "-d", "2", "-o", tmp_path / "out")
        assert target.alive()
        return done

    return record


@pytest.mark.parametrize(
    "changes, told",
    [
        ({}, None),
        ({"entry_size": 0}, "has symbols of 0 bytes"),
        ({"size": 1 << 40}, "has symbols beyond its end"),
        ({"offset": (1 << 64) - 24}, "has an oversized symbol table"),
        ({"link": 1000}, "has symbols without names"),
    ],
    ids=["sound", "entry size 0", "huge", "offset wraps around", "no names"],
)
def test_a_library_with_false_symbols(record_library, tmp_path, changes, told):
    library = build_library(tmp_path, "libtorch_python.so")
    change_symbol_section(library, **changes)
    done = record_library(library)
    assert done.rc == 0, done
    assert samples.Dump(tmp_path / "out" / "recording.dynprof").samples
    said = re.search(r"dynamo_eval_custom_code|libtorch_python\.so has[^;\n]*", done.err)
    if told is None:
        assert not said, done
    else:
        assert said and told in said.group(0), done
