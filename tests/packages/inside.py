"""Runs in a clean Debian: installs, records, removes. Prints PASS or FAIL with what and a text, and END."""

import glob
import json
import os
import re
import subprocess
import tarfile
import time
from pathlib import Path

PACKAGE = "dynprof-bpf"
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": "/mnt/torch",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    "LC_ALL": "C.UTF-8",
    "TMPDIR": "/tmp",
}


def run(*argv, **more):
    return subprocess.run([str(a) for a in argv], capture_output=True, text=True, env=ENVIRONMENT, **more)


def installed_files():
    """Everything but what is not of this root, or changes by itself."""
    found = set()
    for folder in ("/usr", "/etc", "/var", "/opt"):
        for at, _, names in os.walk(folder):
            if not at.startswith(("/var/lib/dpkg", "/var/lib/apt", "/var/cache/apt", "/var/log")):
                found.update(os.path.join(at, name) for name in names)
    return found


def version(program):
    done = run(program, "--version")
    assert done.returncode == 0 and done.stdout.startswith("dynprof-bpf "), done
    return done.stdout.strip()


def doctor(program):
    done = run(program, "doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    return "a recording would work"


def recording(program):
    """As `make demo` does it: attached to the running job by pid."""
    out = Path("/tmp/out")
    try:
        return recorded(program, out)
    except AssertionError:
        run("cp", out / "recording.dynprof", f"/mnt/failed/{program.replace('/', '_')}.dynprof")
        raise


def recorded(program, out):
    run("rm", "-rf", out, "/tmp/cache")
    log = open("/tmp/train.log", "w", encoding="utf-8")
    job = subprocess.Popen(
        ["python3", "/mnt/demo/train.py"], stdout=log, stderr=subprocess.STDOUT,
        env={**ENVIRONMENT, "TORCHINDUCTOR_CACHE_DIR": "/tmp/cache"},
    )
    try:
        for _ in range(1800):
            assert job.poll() is None, Path("/tmp/train.log").read_text()[-2000:]
            if "loading data" in Path("/tmp/train.log").read_text():
                break
            time.sleep(0.1)
        done = run(program, "--pid", job.pid, "-o", out, timeout=600)
        assert done.returncode == 0, done.stderr[-2000:]
        assert job.wait(60) == 0, Path("/tmp/train.log").read_text()[-2000:]
    finally:
        job.kill()
        job.wait()
    ledger = json.loads((out / "compiles.json").read_text())
    rows = ledger["compiles"]
    inexact = [f"{row['trace_id']} {row['kind']}" for row in rows if not (row["exact"] and row["complete"])]
    assert len(rows) >= 10 and not inexact, f"not exact of {len(rows)}: {inexact}; {done.stdout[:3000]}"
    assert ledger["agreement"]["both"] > 100 and ledger["agreement"]["differ"] == 0, ledger["agreement"]
    share = re.search(r"([0-9.]+)% with a trace id", done.stdout)
    without = next((line for line in done.stdout.splitlines() if "with a trace id" in line), "")
    assert share and float(share[1]) >= 99.9, f"{without.strip()}; {ledger['lost']}; {done.stdout[:3000]}"
    assert (out / "trace.json.gz").exists() and list(out.glob("**/*.profile"))
    named_twice = f"{ledger['agreement']['both']} samples named twice, none differently"
    return f"{len(rows)} compiles, all exact; {share[1]} % of samples with an id, {named_twice}"


def live(program):
    job = subprocess.Popen(["python3", "-c", "import time; print('x', flush=True); time.sleep(60)"],
                           stdout=subprocess.PIPE, env=ENVIRONMENT)
    try:
        job.stdout.readline()
        done = run(program, "dump", "-p", job.pid)
        assert done.returncode == 0 and "<module>" in done.stdout, done
        return "dump"
    finally:
        job.kill()
        job.wait()


def manual(_):
    page = run("sh", "-c", "gzip -dc /usr/share/man/man1/dynprof-bpf.1.gz").stdout
    missing = []
    for verb in ("record", "report", "export", "compiles", "dump", "top", "doctor"):
        for option in re.findall(r"--[a-z][a-z-]+", run("/usr/bin/dynprof-bpf", verb, "--help").stdout):
            if option.replace("-", "\\-") not in page:
                missing.append(f"{verb} {option}")
    assert not missing, missing
    return "every option of every verb"


class Report:
    def step(self, what, action, *arguments):
        try:
            text, verdict = action(*arguments), "PASS"
        except Exception as problem:  # the next step is run, whatever it is
            text, verdict = f"{type(problem).__name__}: {problem}", "FAIL"
        print(f"{verdict} {what}: " + " ".join(str(text).split()), flush=True)


def main():
    report = Report()
    before = installed_files()
    (package,) = glob.glob("/mnt/packages/*.deb")

    def install():
        done = run("apt-get", "-o", "Acquire::Check-Valid-Until=false", "-qq", "update")
        done = run("apt-get", "-y", "-qq", "--no-install-recommends", "install", package)
        assert done.returncode == 0, done.stdout[-500:] + done.stderr[-1500:]
        return ", ".join(sorted(re.findall(r"Setting up (\S+)", done.stdout)))

    def remove():
        done = run("apt-get", "-y", "-qq", "--autoremove", "purge", PACKAGE)
        assert done.returncode == 0, done.stderr
        left = [path for path in installed_files() - before if "dynprof" in path]
        assert not left, left
        return "no file of it is left"

    report.step("install the package", install)
    program = "/usr/bin/dynprof-bpf"
    for what, action in (("version", version), ("manual", manual), ("doctor", doctor), ("record the demo", recording),
                         ("dump", live)):
        report.step(what, action, program)
    report.step("purge", remove)

    (archive,) = glob.glob("/mnt/packages/*.tar.gz")
    with tarfile.open(archive) as files:
        files.extractall("/opt")
    (program,) = glob.glob("/opt/dynprof-bpf-*/bin/dynprof-bpf")
    for what, action in (("version", version), ("doctor", doctor), ("record the demo", recording), ("dump", live)):
        report.step(f"archive: {what}", action, program)
    print("END")


main()
