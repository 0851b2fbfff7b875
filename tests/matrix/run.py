#!/usr/bin/env python3
"""`make matrix`: the same real job under each CPython and torch that this machine can get, held against torch's
own account; writes docs/compatibility.md.

    run.py [--only PYTHON-TORCH ...] [--keep]     e.g. --only 3.15-2.15.0

Wheels are unpacked below the cache directory (DYNPROF_CACHE, else ~/.cache/dynprof-bpf), some 5 GB for each
combination with its CUDA libraries, and removed after its row unless --keep is given. Rows that are there from an earlier run of
the same program are kept: an interrupted run goes on where it was.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(Path(__file__).resolve().parent)]

import support  # noqa: E402
import table  # noqa: E402

TORCHES = ("2.6.0", "2.8.0", "2.10.0", "2.12.0", "2.13.0", "2.14.1", "2.15.0")
CACHE = Path(os.environ.get("DYNPROF_CACHE", Path.home() / ".cache" / "dynprof-bpf")) / "matrix"
ROW_TIMEOUT_S = 900
FREE_GB = 12  # of wheels and what is unpacked from them, for a moment twice


def interpreters():
    """{name: path}: the newest of each version, and Debian's own, which is stripped."""
    found = {}
    for one in [*support.interpreters(), *support.unpacked_interpreters()]:
        if (3, 10) <= one.version[:2] <= (3, 15):
            found.setdefault(".".join(map(str, one.version[:2])), one.path)
    debian = Path("/usr/bin/python3.11")
    if debian.exists():
        found["3.11 of Debian"] = debian
    return found


def pip(*arguments):
    return subprocess.run(
        [support.VENV / "bin" / "python", "-m", "pip", "-q", "--no-input", *arguments],
        capture_output=True,
        text=True,
    )


def install(minor, torch):
    """The folder with that torch for CPython 3.minor, or in words why there is none."""
    site = CACHE / f"torch-{torch}-{minor}"
    done = site / ".complete"
    if done.exists():
        return site, None
    if shutil.disk_usage(CACHE).free < FREE_GB << 30:
        return None, f"not run: less than {FREE_GB} GB free in {CACHE}"
    shutil.rmtree(site, ignore_errors=True)
    wanted = ["--target", site, "--only-binary", ":all:", "--implementation", "cp", "--python-version", minor]
    # The CPU build where an index has one. NumPy is not needed, and may not be there for the newest CPython.
    for version in (f"{torch}+cpu", torch):
        for more in (["numpy"], []):
            tried = pip("install", *wanted, f"torch=={version}", "setuptools", *more)
            if tried.returncode == 0:
                done.touch()
                return site, None
    if "No matching distribution found for torch==" in tried.stderr:
        return None, "no wheel"
    return None, "not installed: " + (tried.stderr.strip().splitlines() or ["pip failed"])[-1]


def wrapper(name, path, site):
    """What becomes that interpreter with that torch."""
    script = CACHE / "bin" / f"python-{name.replace(' ', '-')}-{site.name}"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(f'#!/bin/sh\nexport PYTHONPATH="{site}" PYTHONDONTWRITEBYTECODE=1\nexec "{path}" "$@"\n')
    script.chmod(0o755)
    return script


def row(name, path, torch):
    minor = name.split()[0]
    site, why_not = install(minor, torch)
    if why_not:
        return {"problem": why_not}
    out = CACHE / "row.json"
    out.unlink(missing_ok=True)
    argv = [sys.executable, ROOT / "tests" / "matrix" / "one.py", wrapper(name, path, site), out]
    try:
        ran = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=ROW_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return {"problem": f"took more than {ROW_TIMEOUT_S} s"}
    if not out.exists():
        return {"problem": "the comparison failed: " + (ran.stderr.strip().splitlines() or ["no word"])[-1]}
    return json.loads(out.read_text())


def program_hash():
    return hashlib.sha256((support.BUILD / "dynprof-bpf").read_bytes()).hexdigest()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[], metavar="PYTHON-TORCH")
    parser.add_argument("--keep", action="store_true", help="leave the unpacked wheels in the cache")
    options = parser.parse_args()
    CACHE.mkdir(parents=True, exist_ok=True)
    known = CACHE / "rows.json"
    rows = json.loads(known.read_text()) if known.exists() else {}
    if rows.get("program") != program_hash():
        rows = {"program": program_hash(), "rows": {}}
    pythons = interpreters()
    for torch in TORCHES:
        for name, path in pythons.items():
            key = f"{name}-{torch}"
            if key in rows["rows"] or (options.only and key not in options.only):
                continue
            rows["rows"][key] = row(name, path, torch)
            known.write_text(json.dumps(rows, indent=1))
            print(f"  {key}: {table.verdict(rows['rows'][key])}", flush=True)
            if not options.keep:
                shutil.rmtree(CACHE / f"torch-{torch}-{name.split()[0]}", ignore_errors=True)
    if not options.only:
        (ROOT / "docs" / "compatibility.md").write_text(table.document(pythons, TORCHES, rows["rows"]))
    failed = [key for key, one in rows["rows"].items() if table.is_failure(one)]
    print(f"{len(rows['rows']) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
