#!/usr/bin/env python3
"""`make check-packages`: the Debian package and the archive in clean roots of three Debians (root).

    run.py [--only bookworm ...]

In each root: the package is installed, records a torch.compile job of that root's own CPython and torch, and is
purged, after which no file of it may be left; then the same recording by the program of the archive. Roots and torch
are kept below the cache directory (DYNPROF_CACHE, else ~/.cache/dynprof-bpf); a root is changed only through an overlay
that is thrown away. A recording that is not what it should be is kept in build/package/failed/SUITE.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import debian  # noqa: E402

PACKAGES = ROOT / "build" / "package"
CACHE = Path(os.environ.get("DYNPROF_CACHE", Path.home() / ".cache" / "dynprof-bpf")) / "roots"
SUITES = ("bookworm", "trixie", "sid")
# Inductor compiles C++ against the interpreter's headers; gdb's like are not needed.
INCLUDED = "python3,python3-dev,g++,ca-certificates"


def made_root(suite):
    root = CACHE / suite
    if not (root / ".complete").exists():
        shutil.rmtree(root, ignore_errors=True)
        CACHE.mkdir(parents=True, exist_ok=True)
        print(f"  making a root of {suite}", flush=True)
        done = subprocess.run(
            ["debootstrap", "--variant=minbase", f"--include={INCLUDED}", suite, root, debian.mirror("roots")],
            capture_output=True, text=True,
        )
        if done.returncode != 0:
            sys.exit(f"error: debootstrap of {suite} failed: {done.stdout.strip().splitlines()[-1]}\n"
                     f"hint: see {root}/debootstrap/debootstrap.log")
        (root / ".complete").touch()
    return root


def torch_for(root):
    """The folder with a torch for that root's CPython."""
    asked = ["chroot", root, "python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    minor = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    site = CACHE / f"torch-{minor}"
    if not (site / ".complete").exists():
        shutil.rmtree(site, ignore_errors=True)
        print(f"  unpacking torch for CPython {minor}", flush=True)
        for version in ("2.13.0+cpu", "2.13.0"):
            done = subprocess.run(
                [sys.executable, "-m", "pip", "-q", "--no-input", "install", "--target", site, "--only-binary", ":all:",
                 "--implementation", "cp", "--python-version", minor, f"torch=={version}", "setuptools", "numpy"],
                capture_output=True, text=True,
            )
            if done.returncode == 0:
                break
        else:
            sys.exit(f"error: no torch 2.13.0 for CPython {minor}: {done.stderr.strip().splitlines()[-1]}")
        (site / ".complete").touch()
    return site


# Runs in a mount namespace of its own: $1 root, $2 torch, $3 scratch folder, $4 packages, $5 this project, $6 where
# recordings are kept.
INSIDE = r"""
set -e
root=$3/root
mkdir -p "$3/upper" "$3/work" "$root"
mount -t tmpfs tmpfs "$3/upper"
mkdir "$3/upper/files" "$3/upper/work"
mount -t overlay overlay -o "lowerdir=$1,upperdir=$3/upper/files,workdir=$3/upper/work" "$root"
mount --rbind /proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/tmp"
mkdir -p "$root/mnt/torch" "$root/mnt/packages" "$root/mnt/demo" "$root/mnt/tests" "$root/mnt/failed"
mount --bind -o ro "$2" "$root/mnt/torch"
mount --bind -o ro "$4" "$root/mnt/packages"
mount --bind -o ro "$5/demo" "$root/mnt/demo"
mount --bind -o ro "$5/tests/packages" "$root/mnt/tests"
mount --bind "$6" "$root/mnt/failed"
exec chroot "$root" /usr/bin/python3 -B /mnt/tests/inside.py
"""


def check(suite):
    """[(what, passed, text)]"""
    root = made_root(suite)
    site = torch_for(root)
    failed = PACKAGES / "failed" / suite
    shutil.rmtree(failed, ignore_errors=True)
    failed.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="dynprof-packages-") as scratch:
        done = subprocess.run(
            ["unshare", "-m", "--propagation", "private",
             "sh", "-c", INSIDE, "sh", root, site, scratch, PACKAGES, ROOT, failed],
            capture_output=True, text=True,
        )
    results = re.findall(r"^(PASS|FAIL) (.*?): (.*)$", done.stdout, re.M)
    if not done.stdout.rstrip().endswith("END"):
        results.append(("FAIL", "the run in the root", (done.stderr or done.stdout).strip()[-500:]))
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=SUITES, choices=SUITES)
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit(
            "error: needs root: BPF programs are loaded in a root of another Debian\n"
            "hint: sudo make check-packages"
        )
    passed = failed = 0
    for suite in options.only:
        for verdict, what, text in check(suite):
            print(f"  {suite}: {verdict} {what}: {text}", flush=True)
            passed += verdict == "PASS"
            failed += verdict == "FAIL"
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
