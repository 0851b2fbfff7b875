"""Writes what CPython itself says about lines, for tests/tools/line_dump.cpp to compare with.

Run by the interpreter in question (3.10 or later, no other package needed):
    python3.X line_oracle.py sources DIR...    every code object of every .py file below
    python3.X line_oracle.py generated         code objects made to be awkward, some of them run

stdout: little-endian records, each
    u32 magic, u16 major << 8 | minor, i32 first line, u32+bytes name, u32+bytes line table,
    u32 runs of (u32 units, i32 line), u32 points of (i32 unit, i32 line)
Line -1 stands for None. Runs cover every code unit of the code object, by co_positions() (3.10:
co_lines()). Points are (f_lasti, f_lineno) of frames that really stood there. stderr: counts.
"""

import ast
import contextlib
import itertools
import os
import struct
import sys
import types
import warnings

MAGIC = 0x4E4C5044
NO_LINE = -1
PYTHON = sys.version_info[0] << 8 | sys.version_info[1]


class Counts:
    files = 0
    not_compiled = 0
    disagree = 0  # units where co_lines() and co_positions() differ


def number(line):
    return NO_LINE if line is None else line


def lines_by_co_lines(code):
    lines = [NO_LINE] * (len(code.co_code) // 2)
    for begin, end, line in code.co_lines():
        for unit in range(begin // 2, min(end // 2, len(lines))):
            lines[unit] = number(line)
    return lines


def lines_of(code):
    by_lines = lines_by_co_lines(code)
    if not hasattr(code, "co_positions"):
        return by_lines
    lines = [number(position[0]) for position in code.co_positions()]
    lines += [NO_LINE] * (len(by_lines) - len(lines))
    Counts.disagree += sum(a != b for a, b in zip(lines, by_lines, strict=True))
    return lines


def counted(data):
    return struct.pack("<I", len(data)) + data


def write(code, name, points=()):
    runs = [(len(list(units)), line) for line, units in itertools.groupby(lines_of(code))]
    record = struct.pack("<IHi", MAGIC, PYTHON, code.co_firstlineno)
    record += counted(name.encode("utf-8", "replace")) + counted(code.co_linetable)
    for pairs, form in ((runs, "<Ii"), (sorted(set(points)), "<ii")):
        record += struct.pack("<I", len(pairs))
        record += b"".join(struct.pack(form, *pair) for pair in pairs)
    sys.stdout.buffer.write(record)


def write_all(code, name):
    write(code, f"{name}:{code.co_firstlineno} {code.co_name}")
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            write_all(constant, name)


def sources(directories):
    for directory in directories:
        for folder, _, files in sorted(os.walk(directory)):
            for name in sorted(files):
                if not name.endswith(".py"):
                    continue
                path = os.path.join(folder, name)
                with open(path, "rb") as file:
                    text = file.read()
                try:
                    code = compile(text, path, "exec", dont_inherit=True)
                except (SyntaxError, ValueError, RecursionError):
                    Counts.not_compiled += 1
                    continue
                Counts.files += 1
                write_all(code, os.path.relpath(path, directory))


# ---- generated -----------------------------------------------------------------------------------

# What runs calls drive(); every frame of this source is traced opcode by opcode.
AWKWARD = '''
import contextlib


class Early(Exception):
    pass


def after_with(x):
    with contextlib.nullcontext(x) as y:
        z = y
    a = z
    b = a + 1
    return (a,
            b)


def closure(n):
    m = n + 1

    def inner(k):
        nonlocal m
        m = k
        return n + m
    return inner(
        n
    ) + (
        m)


def backward_deltas(f, *args):
    return f(
        args[0],
        f(
            args[1],
            args[2])(1)
        if False else
        args[1],
    )


def raises(x):
    try:
        with contextlib.suppress(KeyError), contextlib.nullcontext():
            if x:
                raise Early(
                    x)
            return x
    except Early as error:
        return str(
            error)
    finally:
        x = None


def generator(n):
    for i in range(n):
        try:
            got = yield (
                i)
        finally:
            got = None
    yield from [
        n,
        n + 1]


def comprehensions(rows):
    return [
        {column: value
         for column, value in row.items()
         if value
         is not None}
        for row in rows
        if row
    ], (lambda: [r
                 for r in rows])()


@contextlib.contextmanager
def decorated(
    x,
    y=(1,
       2),
):
    yield x


class Body:
    a: int = 1

    @property
    def value(self):
        return self.a

    b = [a
         for a in (1, 2)]


def matches(x):
    match x:
        case {"a": [first, *_]}:
            return first
        case Body(a=1):
            return x
        case (1 |
              2):
            return -x
    return None


async def waits(x):
    async with Async():
        async for i in Async():
            x += i
    return [j
            async for j in Async()]


class Async:
    async def __aenter__(self):
        return self

    async def __aexit__(self, *error):
        return None

    def __aiter__(self):
        self.left = 2
        return self

    async def __anext__(self):
        if not self.left:
            raise StopAsyncIteration
        self.left -= 1
        return self.left


def drive():
    after_with(1)
    closure(2)
    backward_deltas(lambda *a: a, 1, 2)
    raises(0)
    raises(1)
    list(generator(3))
    comprehensions([{1: 2, 3: None}, {}])
    with decorated(
        1
    ):
        pass
    Body().value
    matches({"a": [1, 2]})
    matches(Body())
    matches(2)
    matches(3)
    try:
        waits(1).send(None)
    except StopIteration:
        pass
'''


def inductor_call(launches):
    """The wrapper function that Inductor writes: one long body, a few lines per kernel launch."""
    lines = ["def call(args):", "    arg0_1, arg1_1 = args", "    args.clear()"]
    lines += ["    with device_guard(0):", "        set_device(0)"]
    for i in range(launches):
        lines += [
            f"        buf{i} = empty_strided((s0, 1024), (1024, 1), float32)",
            "        # Topologically Sorted Source Nodes: [x, relu], Original ATen: [aten.relu]",
            "        stream0 = get_raw_stream(0)",
            f"        kernel_{i}.run(arg0_1, arg1_1, buf{i}, 1024, s0, grid=grid(1024, s0),",
            "                       stream=stream0)",
        ]
        if i % 7 == 6:
            lines.append(f"        del buf{i - 1}")
    lines.append(f"    return (buf{launches - 1}, )")
    return "\n".join(lines) + "\n"


def moved(source, distances):
    """Statement i of a module, each pushed distances[i % n] lines down: large deltas both ways."""
    tree = ast.parse(source)
    for statement, distance in zip(tree.body, itertools.cycle(distances)):
        ast.increment_lineno(statement, distance)
    return tree


def run_traced(code, name):
    """Executes `code`, notes (unit, f_lineno) at every instruction of its functions, of their
    callers, and of frames that have not begun."""
    points = {}

    def note(frame):
        unit = frame.f_lasti // 2 if frame.f_lasti >= 0 else -1
        points.setdefault(frame.f_code, set()).add((unit, number(frame.f_lineno)))

    def trace(frame, event, _argument):
        if frame.f_code.co_filename != code.co_filename:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            note(frame)
        elif event == "call":  # its callers stand in the middle of theirs
            while (frame := frame.f_back) and frame.f_code.co_filename == code.co_filename:
                note(frame)
        return trace

    names = {}
    sys._getframe().f_trace_opcodes = True  # 3.12 looks at it once, in settrace
    sys.settrace(trace)
    try:
        exec(code, names)
        names["drive"]()
    finally:
        sys.settrace(None)
    # Not begun: f_lasti is -1 on 3.10, the unit of RETURN_GENERATOR later.
    generator = names["generator"](1)  # held: 3.15 takes the line from a frame whose generator is gone
    note(generator.gi_frame)
    coroutine = names["waits"](1)
    note(coroutine.cr_frame)
    coroutine.close()
    for each, seen in points.items():
        write(each, f"{name} run {each.co_name}", seen)
    return sum(map(len, points.values()))


def generated():
    points = run_traced(compile(AWKWARD, "awkward.py", "exec"), "awkward")
    write_all(compile(AWKWARD, "awkward.py", "exec"), "awkward")
    for optimize in (1, 2):
        write_all(compile(AWKWARD, "awkward.py", "exec", optimize=optimize), f"-O{optimize}")
    for gap in (126, 127, 128, 129, 254, 255, 256, 4096, 1 << 20):
        blank = AWKWARD.replace("\n", "\n" * (gap if gap < 300 else 1))
        write_all(compile("\n" * gap + blank, "gap.py", "exec"), f"gap {gap}")
        # Inside one code object: lines that leap ahead and back again.
        count = 600 if gap < 5000 else 20  # 3.10 needs 2 bytes of table per 127 lines
        body = "def f(x):\n" + "".join(f"    x = x + {i}\n" for i in range(count))
        tree = ast.parse(body + "    return x\n")
        for i, statement in enumerate(tree.body[0].body):
            ast.increment_lineno(statement, gap * (i % 3))
        write_all(compile(tree, "leap.py", "exec"), f"leap {gap}")
    write_all(compile(moved(AWKWARD, (0, 500, 3, 70000)), "moved.py", "exec"), "moved")
    # One instruction run longer than an entry can hold (8 units, 254 bytes on 3.10).
    write_all(compile(f"f({', '.join('x' * 3000)})", "long.py", "exec"), "long")
    write_all(compile("\n".join(["x = ["] + ["    y,"] * 5000 + ["]"]), "list.py", "exec"), "list")
    call_table = 0
    for launches in (1, 100, 1000, 5000):
        code = compile(inductor_call(launches), "wrapper.py", "exec")
        write_all(code, f"call {launches}")
        call_table = max(call_table, len(code.co_consts[0].co_linetable))
    some = compile(AWKWARD, "awkward.py", "exec").co_consts
    for code in (c for c in some if isinstance(c, types.CodeType)):
        write(code.replace(co_firstlineno=1_000_000), "renumbered " + code.co_name)
        write(code.replace(co_linetable=b""), "no table " + code.co_name)
    return f" points={points} call_table={call_table}"


def main():
    if sys.version_info < (3, 10):
        sys.exit("line_oracle.py: needs CPython 3.10 or later")
    warnings.simplefilter("ignore")
    extra = ""
    if sys.argv[1:] == ["generated"]:
        extra = generated()
    elif len(sys.argv) > 2 and sys.argv[1] == "sources":
        sources(sys.argv[2:])
    else:
        sys.exit(__doc__)
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.buffer.flush()
    print(f"files={Counts.files} not_compiled={Counts.not_compiled} "
          f"disagree={Counts.disagree}{extra}", file=sys.stderr)


if __name__ == "__main__":
    main()
