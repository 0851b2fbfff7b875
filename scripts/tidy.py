#!/usr/bin/env python3
"""Runs clang-tidy over the program's sources, and only where something changed since it last passed.

    tidy.py [--program clang-tidy-16] [--checks LIST] [--seconds N] [--no-cache] [FILE ...] -- COMPILER FLAGS

Without files: every .cpp of symbolizer/, user/ and cupti/. A result holds as long as its key: the contents of the
file, of each header of the tree that it includes, of .clang-tidy, the flags, and the versions of clang-tidy and of
the packages that the system headers come from. Keys of files that passed are kept in ~/.cache/dynprof-bpf/tidy
($DYNPROF_CACHE); a file with findings is checked again each time.

--seconds: no new file is begun after that time. Files changed since the merge base with the main branch come first;
those not reached are listed as skipped. The last line is `N passed, N failed[, N skipped]`; exit status 1 if a file
has findings.
"""

import argparse
import collections
import hashlib
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = Path(os.environ.get("DYNPROF_CACHE", Path.home() / ".cache" / "dynprof-bpf")) / "tidy"
FOLDERS = ("symbolizer", "user", "cupti")
KEEP_DAYS = 60
INCLUDE = re.compile(rb'^\s*#\s*include\s*"([^"]+)"', re.M)


def output_of(*command):
    """Standard output of a command, empty where it does not exist."""
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    except OSError:
        return ""


class Keys:
    def __init__(self, options):
        self._search = [ROOT / flag[2:] for flag in options.flags if flag.startswith("-I")]
        packages = [line for line in (ROOT / "scripts/packages.txt").read_text().split("\n") if line.endswith("-dev")]
        common = (
            output_of(options.program, "--version"),
            output_of("g++", "--version"),  # clang takes its standard library from there
            output_of("dpkg-query", "-W", *packages, "libc6-dev"),
            *options.flags,
            options.checks or "",
            (ROOT / ".clang-tidy").read_text(),
        )
        self._common = hashlib.sha256("\0".join(common).encode()).digest()
        self._files = {}  # path: (digest, paths of the tree that it includes)

    def _read(self, path):
        if path not in self._files:
            text = path.read_bytes()
            included = []
            for name in INCLUDE.findall(text):
                places = (folder / name.decode() for folder in (path.parent, *self._search))
                included += [place for place in places if place.is_file()][:1]
            self._files[path] = (hashlib.sha256(text).digest(), included)
        return self._files[path]

    def key(self, path):
        """Of a file and all it includes; conditions around an #include are not evaluated, so it may be too many."""
        seen, pending = set(), [path]
        while pending:
            one = pending.pop()
            if one not in seen:
                seen.add(one)
                pending += self._read(one)[1]
        whole = hashlib.sha256(self._common)
        for one in sorted(seen):
            whole.update(str(one.relative_to(ROOT)).encode() + b"\0" + self._read(one)[0])
        return whole.hexdigest()


def changed_files():
    """Paths that differ from the merge base with the main branch, uncommitted changes included."""
    for branch in ("origin/main", "main"):
        base = output_of("git", "merge-base", "HEAD", branch).strip()
        if base:
            return set(output_of("git", "diff", "--name-only", base).split())
    return set()


def expire():
    limit = time.time() - KEEP_DAYS * 86400
    for entry in CACHE.glob("*"):
        if entry.stat().st_mtime < limit:
            entry.unlink(missing_ok=True)


def arguments():
    own, flags = sys.argv[1:], []
    if "--" in own:
        at = own.index("--")
        own, flags = own[:at], own[at + 1 :]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default="clang-tidy")
    parser.add_argument("--checks", help="added to the list of .clang-tidy, as for clang-tidy")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--no-cache", action="store_true")
    parser.add_argument("files", nargs="*", type=Path)
    options = parser.parse_args(own)
    options.flags = flags
    return options


def main():
    options = arguments()
    files = [file.resolve() for file in options.files]
    files = files or sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.cpp"))
    changed = changed_files()
    files.sort(key=lambda path: str(path.relative_to(ROOT)) not in changed)
    keys = Keys(options)
    deadline = time.monotonic() + options.seconds
    CACHE.mkdir(parents=True, exist_ok=True)

    def check(path):
        """(path, what became of it, clang-tidy's output)"""
        entry = CACHE / keys.key(path)
        if entry.exists() and not options.no_cache:
            entry.touch()
            return path, "passed", ""
        if time.monotonic() >= deadline:
            return path, "skipped", ""
        checks = [f"--checks={options.checks}"] if options.checks else []
        command = [options.program, "--quiet", *checks, path, "--", *options.flags]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            return path, "failed", done.stdout + done.stderr
        entry.touch()
        return path, "passed", ""

    counts = collections.Counter()
    skipped = collections.defaultdict(list)
    with ThreadPoolExecutor(os.cpu_count()) as workers:
        for path, outcome, output in workers.map(check, files):
            counts[outcome] += 1
            if outcome == "failed":
                print(output.rstrip(), flush=True)
            elif outcome == "skipped":
                skipped[path.parent.relative_to(ROOT)].append(path.name)
    for folder, names in skipped.items():
        print(f"skipped: {folder}: {' '.join(names)}: not reached in {options.seconds:.0f} s; make tidy checks all")
    expire()
    more = f", {counts['skipped']} skipped" if counts["skipped"] else ""
    print(f"{counts['passed']} passed, {counts['failed']} failed{more}")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
