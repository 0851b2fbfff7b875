#!/usr/bin/env python3
"""`make kernels`: boots Debian's kernels in QEMU, without KVM, and has each load every BPF program and make
recordings (guest.py says which).

    run.py [--only KERNEL ...] [--steps NUMBER,...] [--busy]       e.g. --only 6.1 --steps 0,1

Kernels come from the mirror that apt is set to, into the cache directory (DYNPROF_CACHE, else ~/.cache/dynprof-bpf);
nothing is installed. A kernel that is not available is reported as skipped.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import debian  # noqa: E402

BUILD = Path(os.environ.get("DYNPROF_BUILD", ROOT / "build"))
CACHE = Path(os.environ.get("DYNPROF_CACHE", Path.home() / ".cache" / "dynprof-bpf")) / "kernels"
# By series: Debian's suite, and what its kernel is expected to do.
KERNELS = {
    "6.1": ("bookworm", "all"),
    "6.12": ("trixie", "all"),
    "7": ("sid", "all"),
    "5.10": ("bullseye", "refused"),
}
# QEMU 7.2's emulation of cmpxchg16b is wrong: kernels that use it fault at random. With a thread for each CPU
# (thread=multi) one may still run the int3 of a jump label that the other has patched away: "Oops: int3".
CPU = "max,-cx16"
CPUS = ["-smp", "2"]
# --busy: the guest's clock counts its instructions, 8 ns each, and time without any passes at once: what else runs on
# this machine makes the guest late, not slow. With a second CPU such a guest does not boot.
COUNTED_CPU = ["-smp", "1", "-icount", "shift=3,sleep=off"]
BOOT_TIMEOUT_S = 3600


class Suite:
    """apt with lists and a package database of its own."""

    def __init__(self, name):
        self.folder = CACHE / "apt" / name
        for part in ("state/lists/partial", "cache/archives/partial"):
            (self.folder / part).mkdir(parents=True, exist_ok=True)
        (self.folder / "status").touch()
        (self.folder / "sources.list").write_text(f"deb {debian.mirror('kernels')} {name} main\n")
        self.options = [
            word
            for key, value in {
                "Dir::Etc::sourcelist": self.folder / "sources.list",
                "Dir::Etc::sourceparts": "-",
                "Dir::State": self.folder / "state",
                "Dir::State::status": self.folder / "status",
                "Dir::Cache": self.folder / "cache",
                "APT::Sandbox::User": "root",
            }.items()
            for word in ("-o", f"{key}={value}")
        ]

    def run(self, *argv, cwd=None):
        done = subprocess.run([argv[0], *self.options, *argv[1:]], capture_output=True, text=True, cwd=cwd)
        if done.returncode != 0:
            raise LookupError((done.stderr.strip().splitlines() or [f"{argv[0]} failed"])[-1])
        return done.stdout

    def kernel_packages(self):
        """The newest cloud kernel, and what it needs of the same version."""
        self.run("apt-get", "-q", "update")
        text = self.run("apt-cache", "depends", "--recurse", "--no-recommends", "--no-suggests", "--no-conflicts",
                        "--no-breaks", "--no-replaces", "--no-enhances", "linux-image-cloud-amd64")
        names = sorted(set(re.findall(r"\b(linux-(?:image|binary|modules)-\d\S*-cloud-amd64)\b", text)))
        if not names:
            raise LookupError("linux-image-cloud-amd64 names no kernel")
        return names


def kernel(series, suite):
    """The kernel's file; fetched once."""
    folder = CACHE / series
    found = sorted(folder.glob("**/vmlinuz*"))
    if not found:
        apt = Suite(suite)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name in apt.kernel_packages():
            apt.run("apt-get", "-q", "download", name, cwd=folder)
        for package in folder.glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", package, folder], check=True)
            package.unlink()
        found = sorted(folder.glob("**/vmlinuz*"))
        if not found:
            raise LookupError(f"the packages of {suite} have no vmlinuz")
        for modules in list(folder.glob("**/lib/modules/*/kernel")):
            shutil.rmtree(modules)  # none is needed: the console and what BPF needs are built in
    return found[-1]


def libraries_of(programs):
    """Paths of the shared objects that these need."""
    done = subprocess.run(["ldd", *programs], capture_output=True, text=True)
    return sorted(set(re.findall(r"(/\S+\.so[^\s:]*)(?= \(|$)", done.stdout, re.M)))


def put(root, source, at):
    target = root / str(at).lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    if Path(source).is_dir():
        unwanted = shutil.ignore_patterns(
            "__pycache__", "test", "idlelib", "lib2to3", "ensurepip", "tkinter", "config-*"
        )
        shutil.copytree(source, target, ignore=unwanted, dirs_exist_ok=True)
    else:
        shutil.copy2(source, target)
    return target


def make_root(folder):
    """The guest's files: our programs, CPython 3.11, the look-alike torch, and what they need."""
    root = folder / "root"
    root.mkdir()
    programs = [
        put(root, "/bin/busybox", "/bin/busybox"),
        put(root, BUILD / "dynprof-bpf", "/usr/bin/dynprof-bpf"),
        put(root, "/usr/bin/python3.11", "/usr/bin/python3.11"),
        *(put(root, BUILD / "tests" / name, f"/tests/{name}") for name in ("bpf_load", "sample_dump")),
    ]
    for program in programs:
        if program.parts[-2] == "tests" or program.name == "dynprof-bpf":
            subprocess.run(["strip", "-g", program], check=True)
    put(root, "/usr/lib/python3.11", "/usr/lib/python3.11")
    put(root, ROOT / "tests" / "programs" / "fake_torch", "/tests/fake_torch")
    put(root, ROOT / "tests" / "bpf" / "budget.txt", "/tests/budget.txt")
    put(root, HERE / "guest.py", "/tests/guest.py")
    put(root, HERE / "init", "/init").chmod(0o755)
    extensions = (root / "usr/lib/python3.11/lib-dynload").glob("*.so")
    for library in libraries_of([*programs, *extensions]):
        if not library.startswith(str(root)):
            put(root, library, library)
    image = folder / "root.cpio"
    with open(image, "wb") as out:
        subprocess.run("find . | cpio -o -H newc --quiet", shell=True, cwd=root, stdout=out, check=True)
    return image


def boot(series, image, root, steps, options):
    """The results of the guest's steps, as they come."""
    words = ["console=ttyS0", "rdinit=/init", "loglevel=3", "mitigations=off", "panic=1", f"steps={steps}"]
    if options.steps:
        words.append(f"only={options.steps}")
    argv = ["qemu-system-x86_64", "-accel", "tcg,thread=single,tb-size=512", "-cpu", CPU, "-m", "2G",
            *(COUNTED_CPU if options.busy else CPUS), "-kernel", image, "-initrd", root, "-append", " ".join(words),
            "-display", "none", "-monitor", "none", "-serial", "stdio", "-no-reboot"]
    log = CACHE / f"{series}.log"
    results, ended = [], False
    with open(log, "w") as kept, subprocess.Popen(
        [str(a) for a in argv], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace"
    ) as guest:
        watchdog = threading.Timer(BOOT_TIMEOUT_S, guest.kill)
        watchdog.start()
        for line in guest.stdout:
            kept.write(line)
            line = line.strip()
            if line.startswith("KERNEL "):
                print(f"  {line[7:]}", flush=True)
            elif line.startswith("RESULT "):
                results.append(json.loads(line[7:]))
                one = results[-1]
                text = one["text"] if one["passed"] else f"FAILED: {one['text']}"
                print(f"    {one['step']} ({one['seconds']} s): {text}", flush=True)
            elif line.startswith("DMESG "):
                results.append({"step": "kernel's log", "passed": False, "text": line[6:]})
                print(f"    kernel's log: FAILED: {line[6:]}", flush=True)
            ended |= line == "END"
        watchdog.cancel()
    if not ended:
        results.append({"step": "boot", "passed": False, "text": f"did not come to its end: {log}"})
        print(f"    FAILED: it did not come to its end: {log}", flush=True)
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=list(KERNELS), choices=KERNELS, metavar="KERNEL")
    parser.add_argument("--steps", default="", help="numbers of guest.py's steps, from 0")
    parser.add_argument(
        "--busy", action="store_true", help="one CPU, whose clock does not depend on this machine's load"
    )
    options = parser.parse_args()
    CACHE.mkdir(parents=True, exist_ok=True)
    results, skipped = [], 0
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        root = make_root(Path(folder))
        for series in options.only:
            suite, steps = KERNELS[series]
            print(f"== {series} ({suite})", flush=True)
            try:
                image = kernel(series, suite)
            except LookupError as problem:
                print(f"skipped: Linux {series}: {problem}", flush=True)
                skipped += 1
                continue
            results += boot(series, image, root, steps, options)
    passed = sum(one["passed"] for one in results)
    print(f"{passed} passed, {len(results) - passed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 0 if passed and passed == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
