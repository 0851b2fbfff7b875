"""Our unwind tables say what readelf says of the same files: the CFA and rbp of every row, and no row
between readelf's. Rules we do not know must be marked as such, and be rare."""

import ctypes
import ctypes.util
import re
import struct
import subprocess
import sys
from bisect import bisect_right
from pathlib import Path

import pytest

import support

UNWIND_DUMP = support.BUILD / "tests" / "unwind_dump"
PYENV = Path.home() / ".pyenv" / "versions"
ALIGNMENT = 16

# bpf/unwind_format.h, read a second time.
(NONE, RSP, RBP, DEREF_RBP, DEREF_RSP, PLT, SIGNAL, OUTERMOST, UNSUPPORTED, R10, R13, RBX,
 DEREF_RSP_8) = range(13)
BASES = {RSP: "rsp", RBP: "rbp", R10: "r10", R13: "r13", RBX: "rbx"}
RBP_LOST = 0xFFF

FDE = re.compile(r"[0-9a-f]+ [0-9a-f]+ [0-9a-f]+ FDE cie=([0-9a-f]+) pc=([0-9a-f]+)\.\.([0-9a-f]+)")
CIE = re.compile(r"([0-9a-f]+) [0-9a-f]+ [0-9a-f]+ CIE ")
IN_REGISTER = re.compile(r" \(r\w+\)")
DEREF = re.compile(r"\(DW_OP_breg([67]) \(r[bs]p\): (-?\d+); DW_OP_deref(; DW_OP_plus_uconst: 8)?\)")
PLT_EXPRESSION = re.compile(r"\(DW_OP_breg7 \(rsp\): 8; DW_OP_breg16 \(rip\): 0; DW_OP_lit15; "
                            r"DW_OP_and; DW_OP_lit(\d+); DW_OP_ge; DW_OP_lit3; DW_OP_shl; DW_OP_plus\)")
RBP_EXPRESSION = re.compile(r"r6 \(rbp\) \(DW_OP_breg6 \(rbp\): (-?\d+)\)")


class Table:
    """Rows as unwind_dump writes them."""

    def __init__(self, *arguments):
        assert UNWIND_DUMP.exists(), f"{UNWIND_DUMP} does not exist: run make test-binaries"
        raw = subprocess.run([UNWIND_DUMP, "--raw", *arguments], capture_output=True, check=True).stdout
        self.base, count = struct.unpack_from("<QQ", raw)
        words = memoryview(raw)[16:].cast("I")
        assert len(words) == 2 * count
        self.pcs = words[0::2].tolist()
        self.rules = words[1::2].tolist()

    def check_order(self):
        assert all(a < b for a, b in zip(self.pcs, self.pcs[1:], strict=False)), "rows are not sorted"
        assert all(a != b for a, b in zip(self.rules, self.rules[1:], strict=False)), "equal neighbours"
        assert self.rules[-1] & 15 == NONE

    def at(self, address):
        index = bisect_right(self.pcs, address - self.base) - 1
        return self.rules[index] if index >= 0 else NONE

    def between(self, begin, end):
        """Addresses of rows that begin inside (begin, end)."""
        first = bisect_right(self.pcs, begin - self.base)
        last = bisect_right(self.pcs, end - 1 - self.base)
        return [self.base + pc for pc in self.pcs[first:last]]


def signed(value, bits):
    return value - (1 << bits) if value >> (bits - 1) else value


def cfa_of(rule):
    """As readelf writes it; "exp" with what we know of the expression; None: unsupported."""
    kind, offset = rule & 15, signed(rule >> 4 & 0xFFFF, 16) * 8
    if kind in BASES:
        return f"{BASES[kind]}{offset:+}"
    return {
        DEREF_RBP: ("exp", "deref", "6", offset),
        DEREF_RSP: ("exp", "deref", "7", offset),
        DEREF_RSP_8: ("exp", "deref+8", "7", offset),
        PLT: ("exp", "plt", rule >> 4 & 0xFFFF),
        SIGNAL: ("exp", "deref", "7", offset),
        OUTERMOST: "outermost",
    }.get(kind)


def rbp_of(rule):
    field = rule >> 20
    if field == 0:
        return "u"
    if field == RBP_LOST:
        return None
    return ("exp", (field - 0xC00) * 8) if field >= 0x800 else f"c-{8 * field}"


class Interpreted:
    """FDEs of `readelf --debug-dump=frames-interp`, each as (begin, end, rows of (pc, CFA, rbp, ra))."""

    def __init__(self, path, every):
        # awk keeps every Nth FDE: libtorch_cpu.so's 2 million lines take Python too long.
        self.command = f"readelf -wN --debug-dump=frames-interp \"$1\" 2>/dev/null | awk '{self.filter(every)}'"
        self.path = path

    @staticmethod
    def filter(every):
        return f"/ FDE /{{ n++; keep = n % {every} == 0 }} / CIE /{{ keep=1 }} keep"

    def __iter__(self):
        process = subprocess.Popen(["sh", "-c", self.command, "sh", str(self.path)],
                                   stdout=subprocess.PIPE, text=True)
        cies, entry, rows, columns = {}, None, [], []
        for line in process.stdout:
            words = IN_REGISTER.sub("", line).split()
            if not words or words[1:] == ["ZERO", "terminator"]:
                continue
            if " FDE " in line or " CIE " in line:
                yield from self.finished(entry, rows, cies)
                entry, rows, columns = line, [], []
            elif words[0] == "LOC":
                columns = words
            elif columns and len(words) == len(columns):
                cells = dict(zip(columns, words, strict=True))
                rows.append((int(words[0], 16), cells["CFA"], cells.get("rbp", "u"), cells.get("ra", "u")))
            else:
                raise AssertionError(f"readelf wrote {line!r}")
        yield from self.finished(entry, rows, cies)
        assert process.wait() == 0

    @staticmethod
    def finished(entry, rows, cies):
        if entry is None:
            return
        if cie := CIE.match(entry):
            cies[int(cie[1], 16)] = rows
            return
        found = FDE.match(entry)
        assert found, f"readelf wrote {entry!r}"
        cie, begin, end = (int(part, 16) for part in found.groups())
        # An FDE without instructions of its own is shown without rows: its CIE's counts.
        yield begin, end, rows or [(begin, *row[1:]) for row in cies[cie]]


def expressions(path, every):
    """FDE begin -> what its expressions, which frames-interp does not show, say."""
    script = (f"readelf -wN --debug-dump=frames \"$1\" 2>/dev/null | "
              f"awk '{Interpreted.filter(every)}' | grep -E ' FDE |expression'")
    text = subprocess.run(["sh", "-c", script, "sh", str(path)], capture_output=True, text=True,
                          check=True).stdout
    result, current = {}, set()
    for line in text.splitlines():
        found = FDE.match(line)
        if found:
            current = result.setdefault(int(found[2], 16), set())
        elif deref := DEREF.search(line):
            current.add(("exp", "deref+8" if deref[3] else "deref", deref[1], int(deref[2])))
        elif plt := PLT_EXPRESSION.search(line):
            current.add(("exp", "plt", int(plt[1])))
        elif rbp := RBP_EXPRESSION.search(line):
            current.add(("exp", int(rbp[1])))
    return result


class Comparison:
    def __init__(self, table, path, every):
        self.table = table
        self.expressions = expressions(path, every)
        self.rows = self.unsupported = self.rbp_lost = self.expression_rows = 0
        self.mistakes = []
        self.unknown = set()

    def differ(self, pc, expected, got):
        self.mistakes.append(f"{pc:#x}: readelf says {expected}, we say {got}")

    def row(self, begin, pc, cfa, rbp, back):
        self.rows += 1
        rule = self.table.at(pc)
        ours = cfa_of(rule)
        if ours is None and rule & 15 == UNSUPPORTED:
            self.unsupported += 1
            self.unknown.add((cfa, back))
            # What the format can say must be said.
            if re.fullmatch(r"(rsp|rbp)\+\d{1,5}", cfa) and back == "c-8":
                self.differ(pc, cfa, "unsupported")
            return
        if ours == "outermost":
            # readelf shows an undefined return address as "u".
            if back != "u":
                self.differ(pc, back, ours)
            return
        if cfa == "exp":
            self.expression_rows += 1
            good = ours in self.expressions.get(begin, ())
        else:
            good = ours == cfa
        if not good:
            self.differ(pc, (cfa, rbp), ours)
        self.compare_rbp(begin, pc, rbp, rule)

    def compare_rbp(self, begin, pc, rbp, rule):
        if rule & 15 == SIGNAL:
            return  # its registers stand at fixed places of the kernel's frame
        ours = rbp_of(rule)
        if ours is None:
            self.rbp_lost += 1
            if re.fullmatch(r"u|c-\d{1,4}", rbp):
                self.differ(pc, rbp, "lost")
            return
        good = ours in self.expressions.get(begin, ()) if rbp == "exp" else ours == rbp.replace("s", "u")
        if not good:
            self.differ(pc, rbp, ours)

    def fde(self, begin, end, rows):
        for index, (pc, cfa, rbp, back) in enumerate(rows):
            until = rows[index + 1][0] if index + 1 < len(rows) else end
            if until > pc:
                self.row(begin, pc, cfa, rbp, back)
        extra = set(self.table.between(begin, end)) - {pc for pc, *_ in rows}
        for pc in sorted(extra):
            self.differ(pc, "no row", hex(self.table.at(pc)))
        following = self.table.at(end)
        if following & 15 == NONE:
            return
        # Else another FDE begins there, or padding before one does.
        aligned = -(-end // ALIGNMENT) * ALIGNMENT
        if self.table.at(aligned) & 15 == NONE:
            self.differ(end, "the end", hex(following))


def compare(path, every=1, table=None, unsupported_share=0.001):
    table = table or Table(str(path))
    table.check_order()
    comparison = Comparison(table, path, every)
    fdes = 0
    for begin, end, rows in Interpreted(path, every):
        if begin == end:
            continue
        fdes += 1
        comparison.fde(begin, end, rows)
    print(f"{path}: {fdes} FDEs, {comparison.rows} rows, {comparison.expression_rows} by expression, "
          f"{comparison.unsupported} unsupported {sorted(comparison.unknown)}, "
          f"{comparison.rbp_lost} without rbp, {len(comparison.mistakes)} differences")
    assert not comparison.mistakes, "\n".join(comparison.mistakes[:20])
    assert comparison.unsupported <= max(8, comparison.rows * unsupported_share), "too many unsupported"
    assert comparison.rbp_lost <= max(8, comparison.rows // 1000)
    return comparison


def libc_path():
    library = ctypes.CDLL(ctypes.util.find_library("c"))
    address = ctypes.cast(library.malloc, ctypes.c_void_p).value
    for line in Path("/proc/self/maps").read_text().splitlines():
        begin, end = (int(part, 16) for part in line.split()[0].split("-"))
        if begin <= address < end:
            return Path(line.split(maxsplit=5)[5])
    raise AssertionError("libc is not mapped")


def test_libc():
    comparison = compare(libc_path())
    assert comparison.rows > 10_000
    assert comparison.expression_rows > 0, "the signal frame of __restore_rt"


def test_assembly():
    """OpenSSL's hand-written hashes; their prologues base frames on registers we do not follow."""
    path = Path("/usr/lib/x86_64-linux-gnu/libcrypto.so.3")
    if not path.exists():
        pytest.skip(f"no {path}")
    comparison = compare(path, unsupported_share=0.012)
    assert comparison.expression_rows > 50


@pytest.mark.parametrize("minor", ["3.12", "3.13"])
def test_libpython(minor):
    libraries = sorted(PYENV.glob(f"{minor}.*/lib/libpython{minor}.so.1.0"))
    if not libraries:
        pytest.skip(f"no CPython {minor} with a shared library")
    assert compare(libraries[0]).rows > 50_000


def test_python_of_the_distribution():
    path = Path("/usr/bin/python3.11")
    if not path.exists():
        pytest.skip(f"no {path}")
    assert compare(path).rows > 50_000


def test_compiler():
    found = subprocess.run(["gcc", "-print-prog-name=cc1plus"], capture_output=True, text=True, check=True)
    path = Path(found.stdout.strip())
    assert path.exists(), "gcc has no cc1plus"
    assert compare(path).rows > 300_000


def test_vdso(tmp_path):
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.endswith("[vdso]"):
            begin, end = (int(part, 16) for part in line.split()[0].split("-"))
            break
    else:
        pytest.skip("no vdso")
    image = tmp_path / "vdso.so"
    image.write_bytes(ctypes.string_at(begin, end - begin))
    by_memory = Table("--vdso")
    by_file = Table(str(image))
    assert by_memory.pcs == by_file.pcs and by_memory.rules == by_file.rules
    assert compare(image, table=by_memory).rows > 10


def test_libtorch(venv_python):
    where = subprocess.run(
        [venv_python, "-I", "-c",
         "import importlib.util as u; s = u.find_spec('torch'); print(s.origin if s else '')"],
        capture_output=True, text=True, check=True)
    path = Path(where.stdout.strip()).parent / "lib" / "libtorch_cpu.so"
    assert path.exists(), f"no torch in {support.VENV}"
    table = Table(str(path))
    assert len(table.pcs) * 8 <= 20_000_000
    comparison = compare(path, every=20, table=table)
    assert comparison.rows > 75_000
    assert comparison.expression_rows > 50, "functions that realign their stack"


def test_a_wrong_table_is_noticed():
    path = libc_path()
    table = Table(str(path))
    table.rules[1::1000] = [rule ^ 1 << 4 for rule in table.rules[1::1000]]
    comparison = Comparison(table, path, 1)
    for begin, end, rows in Interpreted(path, 1):
        comparison.fde(begin, end, rows)
    assert len(comparison.mistakes) >= len(table.pcs) // 2000


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
