#!/usr/bin/env python3
"""Runs the named steps of `make check` and sums up what they counted.

    check.py [--beside STEP,...] STEP ...

One step comes after the other; those of --beside run at the same time, at low priority. Every step runs even where an
earlier one failed. The last line is `N passed, N failed` (with `, N skipped` where there were); exit status 0 only if
something passed and nothing failed.
"""

import argparse
import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
RESULTS = BUILD / "check"
VENV = ROOT / ".venv"
STEP_TIMEOUT_S = 3600  # the runtime tests take most of it
MAKE = ("make", "--no-print-directory")
SHELL_FOLDERS = ("scripts", "packaging", "tests/gpu")
TIDY_WITHOUT = "-clang-analyzer-*,-bugprone-unchecked-optional-access"
TIDY_SECONDS = 150  # of new work, files that changed first; it runs beside other steps
# Tests that load no BPF program and measure no time: they may run beside those that do.
READING = (
    "tests/compat",
    *(
        f"tests/runtime/test_{name}.py"
        for name in "compiles cupti_library cupti_life cupti_subscribers".split()
        + "dump generated graph_nodes target top values".split()
    ),
)
# Tests that load BPF programs, but hold no time or rate against a bound and look at nothing but their own target: they
# may run beside the others too. Files that use one recording of a session (compile_run, eager_run) stay in one step.
UNTIMED = tuple(
    f"tests/runtime/test_{name}.py"
    for name in "bad_recordings bad_targets cli_errors decompiled generated_pages hostile_files hostile_names".split()
    + "hostile_paths kernel_lines last_compile matrix modules other_tools process_tree standard_streams".split()
)
FUZZ_INPUTS = 2000
FUZZ_SECONDS = 20
SANITIZER_ENV = {"ASAN_OPTIONS": "detect_leaks=1", "UBSAN_OPTIONS": "print_stacktrace=1"}
SKIPPED_STATUS = 77  # a tool's own way to say "cannot run here", as in automake
CLOSING = re.compile(r"(\d+) passed, (\d+) failed(?:, (\d+) skipped)?\s*$")


@dataclass
class Count:
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    failures: list = field(default_factory=list)
    skips: list = field(default_factory=list)  # (test, reason)

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.failures += other.failures
        self.skips += other.skips

    def fail(self, name):
        self.failed += 1
        self.failures.append(name)

    def __str__(self):
        text = f"{self.passed} passed, {self.failed} failed"
        return f"{text}, {self.skipped} skipped" if self.skipped else text


def count_junit(path, prefix=""):
    """Counts test cases of GoogleTest's and pytest's XML; a case that failed twice counts once."""
    count = Count()
    outcomes = {}
    for case in ElementTree.parse(path).iter("testcase"):
        name = f"{prefix}{case.get('classname', '')}.{case.get('name', '')}"
        if case.find("failure") is not None or case.find("error") is not None:
            outcomes[name] = ("failed", "")
        elif case.find("skipped") is not None:
            outcomes.setdefault(name, ("skipped", case.find("skipped").get("message", "")))
        elif case.get("status") == "notrun":  # GoogleTest: DISABLED_
            outcomes.setdefault(name, ("skipped", "disabled"))
        else:
            outcomes.setdefault(name, ("passed", ""))
    for name, (outcome, reason) in outcomes.items():
        if outcome == "failed":
            count.fail(name)
        elif outcome == "skipped":
            count.skipped += 1
            count.skips.append((name, reason))
        else:
            count.passed += 1
    return count


def run(name, argv, env=None, show=False):
    """Runs argv from the root with its output in build/check/NAME.log; returns (status, output)."""
    log = RESULTS / f"{name}.log"
    env = {**os.environ, "DYNPROF_BUILD": str(BUILD), "DYNPROF_VENV": str(VENV), **(env or {})}
    with open(log, "wb") as out:
        try:
            process = subprocess.Popen(
                [str(a) for a in argv], cwd=ROOT, env=env, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )
        except OSError as error:
            print(f"{argv[0]}: {error}")
            return 127, ""
        watchdog = threading.Timer(STEP_TIMEOUT_S, process.kill)
        watchdog.start()
        for chunk in iter(lambda: process.stdout.read1(65536), b""):
            out.write(chunk)
            if show:
                sys.stdout.buffer.write(chunk)
                sys.stdout.buffer.flush()
        status = process.wait()
        watchdog.cancel()
    return status, log.read_text(errors="replace")


def tool(name, argv, env=None):
    """One check that is a program: 0 passed, 77 skipped with its last line as the reason, else failed.
    A closing line `N passed, N failed` of its own is believed, and so are lines `skipped: NAME: REASON`."""
    count = Count()
    status, output = run(name, argv, env)
    lines = output.strip().splitlines()
    closing = CLOSING.search(lines[-1]) if lines else None
    if closing:
        count.passed, count.failed, count.skipped = (int(n or 0) for n in closing.groups())
        count.failures += [f"{name} (build/check/{name}.log)"] * count.failed
        said = (line.removeprefix("skipped: ").partition(": ") for line in lines if line.startswith("skipped: "))
        count.skips += [(f"{name}: {what}", why) for what, _, why in said]
        if status != 0 and count.failed == 0:
            count.fail(f"{name}: exit status {status}")
    elif status == 0:
        count.passed = 1
    elif status == SKIPPED_STATUS and os.environ.get("CI") != "true":
        count.skipped = 1
        count.skips.append((name, lines[-1] if lines else ""))
    else:
        count.fail(f"{name}: exit status {status}")
    if count.failed:
        print("\n".join(lines[-40:]))
    return count


def with_report(name, argv, report, env=None, show=False, nothing_run=None):
    """A test runner that writes JUnit XML. Dying without a failure in it is a failure too."""
    report.unlink(missing_ok=True)
    status, output = run(name, argv, env, show)
    count = Count()
    if nothing_run is not None and status == nothing_run:
        return count
    try:
        count = count_junit(report, f"{name}: ")
    except (OSError, ElementTree.ParseError):
        count.fail(f"{name}: no result file")
    if status != 0 and not count.failed:
        count.fail(f"{name}: exit status {status}")
    if count.failed and not show:
        print("\n".join(output.splitlines()[-60:]))
    return count


# ---- the steps -----------------------------------------------------------------------------------


def installed_tool(name, argv):
    """A program that this machine may lack: then skipped, which fails with CI=true."""
    if shutil.which(argv[0]):
        return tool(name, argv)
    count = Count()
    if os.environ.get("CI") == "true":
        count.fail(f"{name}: {argv[0]} is not installed")
    else:
        count.skipped = 1
        count.skips.append((name, f"{argv[0]} is not installed: make setup"))
    return count


def step_style():
    count = tool("include-edges", [sys.executable, "tests/check_includes.py"])
    count.add(tool("file-sizes", [sys.executable, "tests/check_sizes.py"]))
    count.add(tool("class-members", [sys.executable, "tests/check_members.py"]))
    count.add(tool("class-names", [sys.executable, "tests/check_names.py"]))
    count.add(tool("doc-links", [sys.executable, "tests/check_links.py"]))
    scripts = sorted(path for folder in SHELL_FOLDERS for path in (ROOT / folder).glob("*.sh"))
    count.add(installed_tool("shellcheck", ["shellcheck", *scripts, ".ci/run"]))
    count.add(installed_tool("ruff", [VENV / "bin" / "ruff", "check", "--no-cache", "."]))
    count.add(tool("clang-format", [*MAKE, "check-format"]))
    return count


def step_tidy():
    """Without the checks that follow all paths through each function: they take two thirds of the time."""
    return tool("clang-tidy", [*MAKE, "tidy", f"ARGS=--seconds {TIDY_SECONDS} --checks={TIDY_WITHOUT}"])


def unit(name, build, shards=1):
    binary = build / "tests" / "unit"

    def shard(number):
        one = f"{name}-{number}" if shards > 1 else name
        report = RESULTS / f"{one}.xml"
        folder = RESULTS / f"{one}-files"  # GoogleTest's TempDir
        folder.mkdir(exist_ok=True)
        env = {
            **SANITIZER_ENV,
            "TEST_TMPDIR": f"{folder}/",
            "GTEST_TOTAL_SHARDS": str(shards),
            "GTEST_SHARD_INDEX": str(number),
        }
        argv = [binary, "--gtest_brief=1", f"--gtest_output=xml:{report}"]
        return with_report(one, argv, report, env)

    count = Count()
    with ThreadPoolExecutor(shards) as workers:
        for one in workers.map(shard, range(shards)):
            count.add(one)
    return count


def step_unit():
    return unit("unit", BUILD)


def step_build_san():
    """What the two steps below run."""
    return tool("build-san", [*MAKE, f"-j{os.cpu_count()}", "SAN=1", "unit", "fuzz-replays"])


def step_unit_san():
    """Several times slower than the plain ones, so on every CPU."""
    return unit("unit-san", BUILD / "san", shards=os.cpu_count())


def step_fuzz():
    """Each parser of foreign bytes under ASan and UBSan: inputs made by chance, then real ones, made from
    this machine's own files and memory, and changes of them. Short; `make fuzz-long` takes its time."""
    seeds = RESULTS / "fuzz-seeds"
    count = tool("fuzz-seeds", [sys.executable, "tests/fuzz/seeds.py", seeds])

    def fuzz(source):
        name = source.name[: -len("_fuzz.cpp")]
        binary = BUILD / "san" / "fuzz" / name
        one = tool(f"fuzz-{name}-random", [binary, "--random", FUZZ_INPUTS], SANITIZER_ENV)
        one.add(tool(f"fuzz-{name}-seeds", [binary, "--seconds", FUZZ_SECONDS, 1, seeds / name], SANITIZER_ENV))
        return one

    sources = sorted((ROOT / "tests" / "fuzz").glob("*_fuzz.cpp"))
    with ThreadPoolExecutor(os.cpu_count()) as workers:  # each fuzzer has one thread
        for one in workers.map(fuzz, sources):
            count.add(one)
    return count


def step_load():
    binary = BUILD / "tests" / "bpf_load"
    if not (ROOT / "tests" / "tools" / "bpf_load.cpp").exists():
        return Count(skipped=1, skips=[("bpf-load", "there is no tests/tools/bpf_load.cpp")])
    return tool("bpf-load", [binary, "tests/bpf/budget.txt"])


def step_older_kernels():
    """Emulated: the verifiers of Debian's stable kernels refuse programs that a newer one accepts."""
    missing = [name for name in ("qemu-system-x86_64", "busybox", "cpio") if not shutil.which(name)]
    if missing:
        return Count(skipped=1, skips=[("older-kernels", f"{missing[0]} is not installed")])
    return tool("older-kernels", [sys.executable, "tests/kernels/run.py", "--only", "6.1", "6.12", "--steps", "0"])


def pytest(name, *arguments):
    report = RESULTS / f"{name}.xml"
    chosen = os.environ.get("PYTEST", "").split()
    argv = [VENV / "bin" / "python", "-m", "pytest", "-q", "-ra", "-p", "no:cacheprovider",
            "--durations=20", f"--junitxml={report}", *chosen, *arguments]
    env = {"PYTHONDONTWRITEBYTECODE": "1"}
    # What PYTEST chooses may be in one of the steps alone.
    return with_report(name, argv, report, env, show=True, nothing_run=5 if chosen else None)


def step_reading():
    return pytest("pytest-reading", *READING)


def step_untimed():
    return pytest("pytest-untimed", *UNTIMED)


def step_runtime():
    return pytest("pytest", "tests/runtime", *(f"--ignore={path}" for path in (*READING, *UNTIMED)))


STEPS = {
    "style": step_style,
    "tidy": step_tidy,
    "unit": step_unit,
    "build-san": step_build_san,
    "unit-san": step_unit_san,
    "fuzz": step_fuzz,
    "load": step_load,
    "older-kernels": step_older_kernels,
    "reading": step_reading,
    "untimed": step_untimed,
    "runtime": step_runtime,
}


def run_steps(names):
    total = Count()
    for name in names:
        began = time.monotonic()
        print(f"== {name}", flush=True)
        count = STEPS[name]()
        total.add(count)
        print(f"   {name}: {count} in {time.monotonic() - began:.1f} s", flush=True)
    return total


class Beside:
    """A process of its own for the steps that run beside the others; its output comes when all are done."""

    def __init__(self, names):
        self._log, self._result = RESULTS / "beside.log", RESULTS / "beside.json"
        self._result.unlink(missing_ok=True)
        argv = ["nice", "-n", "15", sys.executable, __file__, "--result", self._result, *names]
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        print(f"beside the other steps: {', '.join(names)} (build/check/beside.log)", flush=True)

    def wait(self):
        self._process.wait()
        print(self._log.read_text(errors="replace"), end="", flush=True)
        try:
            return Count(**json.loads(self._result.read_text()))
        except (OSError, ValueError):
            count = Count()
            count.fail(f"beside: exit status {self._process.returncode}, no result file")
            return count


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--beside", default="", help="steps to run at the same time, separated by commas")
    parser.add_argument("--result", type=Path, help="also write the counts to this file, as JSON")
    parser.add_argument("steps", nargs="+", choices=STEPS)
    options = parser.parse_args()
    RESULTS.mkdir(parents=True, exist_ok=True)
    names = [name for name in options.beside.split(",") if name]
    beside = Beside(names) if names else None
    total = run_steps(options.steps)
    if beside:
        total.add(beside.wait())
    if options.result:
        options.result.write_text(json.dumps(dataclasses.asdict(total)))  # who started this sums up
        return 0
    for name, reason in total.skips:
        print(f"skipped: {name}: {reason}")
    for name in total.failures:
        print(f"FAILED: {name}")
    print(total, flush=True)
    return 0 if total.passed and not total.failed else 1


if __name__ == "__main__":
    sys.exit(main())
