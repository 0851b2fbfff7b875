#!/usr/bin/env python3
"""One row of the compatibility table: one.py PYTHON OUT.json [FOLDER]. Records the job of every kind of compile under
that interpreter and its torch, and writes the cells as JSON; `problem` where there is nothing to compare. FOLDER, which
must be empty, keeps the recording."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "runtime")]

import cells  # noqa: E402
import matrix_run  # noqa: E402

# `shared`: whether compiles of different threads share one account (torch 2.6): compiles that overlap then have each
# other's times and names in it. `attempts`: whether an attempt is a phase of its own.
PROBE = """
import inspect, json, platform, torch, torch._dynamo.convert_frame as convert_frame, torch._dynamo.utils as utils
shared = isinstance(getattr(utils, "_METRICS_CONTEXT", None), getattr(utils, "MetricsContext", ()))
attempts = "compile_attempt_" in inspect.getsource(convert_frame)
print(json.dumps([platform.python_version(), torch.__version__, shared, attempts]))
"""


def dynamo_profile(python, folder):
    """The tests that compare with torch's own Dynamo profiler, where this release has one."""
    asked = "import torch._dynamo.config as c; print(hasattr(c, 'dynamo_profiler'))"
    if subprocess.run([python, "-c", asked], capture_output=True, text=True).stdout.strip() != "True":
        return "-"
    venv = folder / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").symlink_to(python)
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/runtime/test_dynamo_profile.py"]
    done = subprocess.run(
        argv, cwd=ROOT, env={**os.environ, "DYNPROF_VENV": str(venv)}, capture_output=True, text=True, timeout=600
    )
    last = done.stdout.strip().splitlines()[-1]
    return "exact" if done.returncode == 0 else f"tests: {last}"


def row(python, folder):
    probed = subprocess.run([python, "-c", PROBE], capture_output=True, text=True, timeout=300)
    if probed.returncode != 0:
        return {"problem": "torch cannot be imported: " + probed.stderr.strip().splitlines()[-1]}
    version, torch, shared, attempts = json.loads(probed.stdout.strip().splitlines()[-1])
    found = {"python": version, "torch": torch, "threads": not shared, "attempt_phases": attempts}
    try:
        run = matrix_run.record_run(folder, matrix_run.ONE_THREAD if shared else "dynamo", python, cells.pair)
    except AssertionError as problem:
        return {**found, "problem": str(problem).strip()[-2000:]}
    found["cells"] = cells.cells(run)
    found["notes"] = [line.strip() for line in run.done.err.splitlines() if line.strip().startswith("note:")]
    found["cells"]["Dynamo profile"] = dynamo_profile(python, folder)
    return found


def main():
    python, out, *kept = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        Path(out).write_text(json.dumps(row(python, Path(*kept) if kept else Path(folder)), indent=1))


if __name__ == "__main__":
    main()
