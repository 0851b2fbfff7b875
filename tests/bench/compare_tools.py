"""dynprof-bpf, perf and py-spy on the same program at the same time: do their top tens agree?

    compare_tools.py [--seconds S] [--python PATH]

The program spends its time in a few Python functions and in the C functions they call. perf and we are
compared by the innermost native function, py-spy and we by the innermost Python function. A difference
counts when it is more than four standard errors of two samples of these sizes; the exit status is 1
then. A tool that is not installed is left out, saying so.
"""

import argparse
import collections
import math
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPO = HERE.parent.parent
sys.path.insert(0, str(REPO / "tests"))
sys.path.insert(0, str(REPO / "tests" / "runtime"))

import samples  # noqa: E402
import support  # noqa: E402

HERTZ = 199  # of no other period in the program
TOP = 10
ERRORS = 4.0

PROGRAM = """
import bisect, json, random, re, zlib
random.seed(1)
numbers = [random.random() for _ in range(20_000)]
text = " ".join(map(str, numbers[:4_000]))
data = text.encode()
records = [{"name": str(n), "values": [n, n * 2, None]} for n in numbers[:600]]

def sorting():
    return sorted(numbers)
def dumping():
    return json.dumps(records)
def loading(document):
    return json.loads(document)
def packing():
    return zlib.compress(data, 3)
def matching():
    return len(re.findall(r"[0-9]+\\\\.[0-9]*7", text))
def counting():
    total = 0
    for number in numbers:
        if number > 0.5:
            total += 1
    return total
def hashing():
    return {n: i for i, n in enumerate(numbers)}
def joining():
    return ",".join([repr(n) for n in numbers[:3000]])

print("ready", flush=True)
while True:
    sorting(); loading(dumping()); packing(); matching(); counting(); hashing(); joining()
"""


def ours(directory):
    """(native leaves, Python leaves)"""
    dump = samples.Dump(directory / "recording.dynprof")
    native, python = collections.Counter(), collections.Counter()
    for sample in dump.samples:
        stack = dump.whole_stack(sample.stack)
        if not stack:
            continue
        leaf = next((f for f in stack if f.kind != samples.KERNEL_FRAME), None)
        in_kernel = stack[0].kind == samples.KERNEL_FRAME
        if not in_kernel and leaf:
            # A Python frame at the leaf is the interpreter's loop at work.
            loop = leaf.kind == samples.PYTHON_FRAME
            name = "[unknown]" if leaf.unreadable else leaf.function
            native["_PyEval_EvalFrameDefault" if loop else name] += 1
        first = next((f for f in stack if f.kind == samples.PYTHON_FRAME), None)
        if first:
            python[first.name] += 1
    return native, python


def perf_leaves(data):
    text = subprocess.run(["perf", "script", "-i", data, "-F", "ip,sym"], capture_output=True, text=True)
    leaves, first = collections.Counter(), True
    for line in text.stdout.splitlines():
        if not line.strip():
            first = True
            continue
        if first:
            words = line.split(maxsplit=1)
            address, name = int(words[0], 16), words[1] if len(words) > 1 else "[unknown]"
            if not address >> 63:
                leaves[re.sub(r"\+0x[0-9a-f]+$", "", name)] += 1
            first = False
    return leaves


def pyspy_leaves(path):
    leaves = collections.Counter()
    for line in path.read_text().splitlines():
        stack, _, count = line.rpartition(" ")
        # Qualified names from 3.11 on; ours are asked for without.
        leaves[stack.split(";")[-1].split(" (")[0].rpartition(".")[2]] += int(count)
    return leaves


def loop_parts(name):
    return "_PyEval_EvalFrameDefault" if name.startswith("_PyEval_EvalFrameDefault") else name


def compare(title, theirs, mine):
    merged = [collections.Counter(), collections.Counter()]
    for into, counts in zip(merged, (theirs, mine), strict=True):
        for name, count in counts.items():
            into[loop_parts(name)] += count
    theirs, mine = merged
    n, m = sum(theirs.values()), sum(mine.values())
    print(f"\n{title}: {n} samples of theirs, {m} of ours")
    if not n or not m:
        print("  nothing to compare")
        return False
    tops = [[name for name, _ in counts.most_common(TOP)] for counts in (theirs, mine)]
    good = True
    print(f"  {'function':<40} {'theirs':>8} {'ours':>8} {'errors':>7}")
    for name in dict.fromkeys(tops[0] + tops[1]):
        p, q = theirs[name] / n, mine[name] / m
        pooled = (theirs[name] + mine[name]) / (n + m)
        error = math.sqrt(max(pooled * (1 - pooled), 1e-9) * (1 / n + 1 / m))
        off = abs(p - q) / error
        good = good and off <= ERRORS
        print(f"  {name[:40]:<40} {p:8.1%} {q:8.1%} {off:7.1f}{'' if off <= ERRORS else '  <<<'}")
    print(f"  {len(set(tops[0]) & set(tops[1]))} of {TOP} in both top tens")
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--python", default=sys.executable)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="compare-tools-"))
    target = support.spawn([arguments.python, "-c", PROGRAM.replace("\\\\", "\\")])
    pid, started, good = str(target.pid), [], True
    seconds = str(arguments.seconds)
    try:
        data, folded = folder / "perf.data", folder / "py-spy.txt"
        if shutil.which("perf"):
            command = ["perf", "record", "-g", "-e", "cpu-clock", "-F", HERTZ, "-p", pid, "-o", data]
            started.append([*command, "--", "sleep", seconds])
        else:
            print("perf: not installed, left out")
        pyspy = shutil.which("py-spy") or support.VENV / "bin" / "py-spy"
        if Path(pyspy).exists():
            command = [pyspy, "record", "-r", HERTZ, "-d", round(arguments.seconds)]
            started.append([*command, "-f", "raw", "-F", "-o", folded, "-p", pid])
        else:
            print("py-spy: not installed, left out")
        command = [support.BINARY, "record", "-F", HERTZ, "-d", f"{seconds}s"]
        started.append([*command, "-o", folder / "out", "-p", pid])
        running = []
        for number, command in enumerate(started):
            with open(folder / f"said-{number}", "w") as said:
                running.append(subprocess.Popen(list(map(str, command)), stdout=said, stderr=said))
        deadline = time.monotonic() + arguments.seconds + 60
        for process in running:
            process.wait(max(1, deadline - time.monotonic()))
        native, python = ours(folder / "out")
        if data.exists():
            good &= compare("perf record -g, innermost native function", perf_leaves(data), native)
        if folded.exists():
            good &= compare("py-spy, innermost Python function", pyspy_leaves(folded), python)
    finally:
        target.kill()
        shutil.rmtree(folder)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
