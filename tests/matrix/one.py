#!/usr/bin/env python3
"""One row of the compatibility table: one.py PYTHON OUT.json. Records the job of every kind of compile under that
interpreter and its torch, and writes the cells as JSON; `problem` where there is nothing to compare."""

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

PROBE = "import json, platform, torch; print(json.dumps([platform.python_version(), torch.__version__]))"


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


def row(python):
    probed = subprocess.run([python, "-c", PROBE], capture_output=True, text=True, timeout=300)
    if probed.returncode != 0:
        return {"problem": "torch cannot be imported: " + probed.stderr.strip().splitlines()[-1]}
    version, torch = json.loads(probed.stdout.strip().splitlines()[-1])
    found = {"python": version, "torch": torch}
    with tempfile.TemporaryDirectory() as folder:
        try:
            run = matrix_run.record_run(Path(folder), "dynamo", python)
        except AssertionError as problem:
            return {**found, "problem": str(problem).strip()[-2000:]}
        found["cells"] = cells.cells(run)
        found["notes"] = [line.strip() for line in run.done.err.splitlines() if line.strip().startswith("note:")]
        found["cells"]["Dynamo profile"] = dynamo_profile(python, Path(folder))
    return found


def main():
    python, out = sys.argv[1:]
    Path(out).write_text(json.dumps(row(python), indent=1))


if __name__ == "__main__":
    main()
