"""One torch release for one CPython, unpacked into a folder by pip.

The CUDA libraries that a release asks for are the same for each CPython: they are unpacked once for a release, and
its folders link to them (torch's libraries look for `nvidia` beside `torch`).
"""

import importlib.metadata
import os
import re
import shutil
import subprocess

from packaging.requirements import Requirement

import support

FREE_GB = 12  # what a release takes for a moment, with its wheels
PIP_TIMEOUT_S = 900
CUDA = re.compile(r"nvidia-|cuda-toolkit")  # wheels that are not built for one CPython


class NotInstalled(Exception):
    pass


def at_idle():
    """An installation runs beside the recording before it, and must not take its CPUs."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def pip_install(folder, minor, *requirements):
    """pip's errors, None where it worked."""
    argv = (
        [support.VENV / "bin" / "python", "-m", "pip", "-q", "--no-input", "install", "--upgrade", "--target", folder]
        # Wheels of gigabytes are used once, and pip would compile for its own CPython.
        + ["--no-cache-dir", "--no-compile"]
        + ["--only-binary", ":all:", "--implementation", "cp", "--python-version", minor, *requirements]
    )
    try:
        done = subprocess.run(argv, capture_output=True, text=True, preexec_fn=at_idle, timeout=PIP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return f"pip took more than {PIP_TIMEOUT_S} s"
    return None if done.returncode == 0 else done.stderr.strip() or "pip failed"


def reason(problem):
    """The line of pip's errors that says what is wrong; the last one may only name a page to read."""
    errors = [line for line in problem.splitlines() if line.startswith("ERROR:")]
    return errors[0] if errors else problem.splitlines()[-1]


def install_torch(site, minor, torch):
    """torch alone. The CPU build where an index has one."""
    for version in (f"{torch}+cpu", torch):
        problem = pip_install(site, minor, "--no-deps", f"torch=={version}")
        if problem is None:
            return
    if "No matching distribution found" in problem:
        raise NotInstalled("no wheel")
    raise NotInstalled("not installed: " + reason(problem))


def required(site, minor):
    """(CUDA libraries, all else) that the torch in that folder asks for, as pip takes them."""
    (torch,) = importlib.metadata.distributions(name="torch", path=[str(site)])
    environment = {"python_version": minor, "python_full_version": minor + ".0", "extra": ""}
    cuda, other = [], ["setuptools"]
    for text in torch.requires or []:
        one = Requirement(text)
        if one.marker is None or one.marker.evaluate(environment):
            one.marker = None
            (cuda if CUDA.match(one.name) else other).append(str(one))
    return cuda, other


def link_cuda(site, shared, minor, cuda):
    done = shared / ".complete"
    if not done.exists():
        shutil.rmtree(shared, ignore_errors=True)
        problem = pip_install(shared, minor, *cuda)
        if problem:
            raise NotInstalled("not installed: " + reason(problem))
        done.touch()
    for entry in shared.iterdir():
        if entry.suffix != ".dist-info" and not (site / entry.name).exists():
            (site / entry.name).symlink_to(entry)


def install(cache, minor, torch):
    """The folder with that torch for CPython 3.minor; NotInstalled says in words why there is none."""
    site = folder_of(cache, minor, torch)
    done = site / ".complete"
    if done.exists():
        return site
    if shutil.disk_usage(cache).free < FREE_GB << 30:
        raise NotInstalled(f"not run: less than {FREE_GB} GB free in {cache}")
    shutil.rmtree(site, ignore_errors=True)
    install_torch(site, minor, torch)
    cuda, other = required(site, minor)
    if problem := pip_install(site, minor, *other):
        raise NotInstalled("not installed: " + reason(problem))
    # NumPy is not needed, and may not be there for the newest CPython: by itself, since pip would else look for minutes
    # for a set of versions that has one.
    pip_install(site, minor, "--no-deps", "numpy")
    if cuda:
        link_cuda(site, cuda_folder(cache, torch), minor, cuda)
    done.touch()
    return site


def folder_of(cache, minor, torch):
    return cache / f"torch-{torch}-{minor}"


def cuda_folder(cache, torch):
    return cache / f"cuda-of-torch-{torch}"


def python_with(site, python, script):
    """Makes `script` a program that becomes that interpreter with what is in that folder."""
    script.write_text(f'#!/bin/sh\nexport PYTHONPATH="{site}"\nexec "{python}" "$@"\n')
    script.chmod(0o755)
    return script
