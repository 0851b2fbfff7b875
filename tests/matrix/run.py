#!/usr/bin/env python3
"""`make matrix`: the same real job under each CPython and torch that this machine can get, compared with torch's
own records; writes docs/compatibility.md.

    run.py [--only PYTHON-TORCH ...] [--keep]     e.g. --only 3.15-2.15.0

Wheels are unpacked below the cache directory (DYNPROF_CACHE, else ~/.cache/dynprof-bpf), some 5 GB for a
combination with its CUDA libraries, and removed after its row unless --keep is given. Rows that are there from an
earlier run of the same version are kept: an interrupted run goes on where it was. With --only the page has the other
rows as they were last made, and says by which version.
"""

import argparse
import concurrent.futures
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
import wheels  # noqa: E402

TORCHES = ("2.6.0", "2.8.0", "2.10.0", "2.12.0", "2.13.0", "2.14.1", "2.15.0")
CACHE = Path(os.environ.get("DYNPROF_CACHE", Path.home() / ".cache" / "dynprof-bpf")) / "matrix"
ROW_TIMEOUT_S = 900
DEBIAN = Path("/usr/bin/python3.11")


def interpreters():
    """{name: path}: the newest of each version, and Debian's own, which is stripped."""
    found = {}
    for one in [*support.interpreters(), *support.unpacked_interpreters()]:
        if (3, 10) <= one.version[:2] <= (3, 15) and Path(one.path) != DEBIAN:
            found.setdefault(".".join(map(str, one.version[:2])), one.path)
    if DEBIAN.exists():
        found["3.11 of Debian"] = DEBIAN
    return dict(sorted(found.items(), key=lambda item: (len(item[0].split()[0]), item[0])))


def wrapper(name, path, site):
    """What becomes that interpreter with that torch."""
    (CACHE / "bin").mkdir(exist_ok=True)
    return wheels.python_with(site, path, CACHE / "bin" / f"python-{name.replace(' ', '-')}-{site.name}")


def row(name, path, site, kept):
    out = CACHE / "row.json"
    out.unlink(missing_ok=True)
    argv = [sys.executable, ROOT / "tests" / "matrix" / "one.py", wrapper(name, path, site), out]
    if kept:
        shutil.rmtree(kept, ignore_errors=True)
        kept.mkdir(parents=True)
        argv.append(kept)
    try:
        ran = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=ROW_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return {"problem": f"took more than {ROW_TIMEOUT_S} s"}
    if not out.exists():
        return {"problem": "the comparison failed: " + (ran.stderr.strip().splitlines() or ["it printed nothing"])[-1]}
    return json.loads(out.read_text())


class Rows:
    """The rows that are known, kept in the cache as they come."""

    def __init__(self):
        self._file = CACHE / "rows.json"
        self.rows = json.loads(self._file.read_text())["rows"] if self._file.exists() else {}
        said = subprocess.run([support.BINARY, "--version"], capture_output=True, text=True, check=True).stdout
        self._version = said.split()[-1]

    def is_new(self, key):
        return self.rows.get(key, {}).get("program") == self._version

    def add(self, key, found):
        self.rows[key] = found | {"program": self._version}
        self._file.write_text(json.dumps({"rows": self.rows}, indent=1))
        print(f"  {key}: {table.verdict(found)}", flush=True)


def groups(pythons, wanted):
    """[(torch, 3.x, [names])]: what shares an unpacked torch, releases together, the newest first."""
    found = {}
    for torch in reversed(TORCHES):
        for name in pythons:
            if wanted(f"{name}-{torch}"):
                found.setdefault((torch, name.split()[0]), []).append(name)
    return [(torch, minor, names) for (torch, minor), names in found.items()]


def run(pythons, rows, wanted, keep):
    todo = groups(pythons, wanted)
    with concurrent.futures.ThreadPoolExecutor(1) as installer:
        # One ahead: the next is unpacked while a row is recorded.
        sites = [None] * len(todo)

        def begin(i):
            if i < len(todo):
                sites[i] = installer.submit(wheels.install, CACHE, todo[i][1], todo[i][0])

        begin(0)
        for i, (torch, minor, names) in enumerate(todo):
            begin(i + 1)
            for name in names:
                key = f"{name}-{torch}"
                kept = CACHE / "recordings" / key.replace(" ", "-") if keep else None
                try:
                    rows.add(key, row(name, pythons[name], sites[i].result(), kept))
                except wheels.NotInstalled as why:
                    rows.add(key, {"problem": str(why)})
            if not keep:
                shutil.rmtree(wheels.folder_of(CACHE, minor, torch), ignore_errors=True)
                if all(later != torch for later, *_ in todo[i + 1 :]):
                    shutil.rmtree(wheels.cuda_folder(CACHE, torch), ignore_errors=True)


def update_page(text):
    """Not with rows missing that it has: they were made on another machine, or the cache was removed."""
    page = ROOT / "docs" / "compatibility.md"
    if text.count(table.NOT_RUN) > page.read_text().count(table.NOT_RUN):
        page = CACHE / "compatibility.md"
        print(f"docs/compatibility.md has rows that are not in {CACHE}: this page is in {page}")
    page.write_text(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[], metavar="PYTHON-TORCH")
    parser.add_argument("--keep", action="store_true", help="leave the unpacked wheels and the recordings in the cache")
    options = parser.parse_args()
    CACHE.mkdir(parents=True, exist_ok=True)
    rows, pythons = Rows(), interpreters()
    wanted = options.only.__contains__ if options.only else lambda key: not rows.is_new(key)
    run(pythons, rows, wanted, options.keep)
    update_page(table.document(pythons, TORCHES, rows.rows))
    failed = [key for key, one in rows.rows.items() if table.is_failure(one)]
    print(f"{len(rows.rows) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
