"""`doctor`: what would work here and on one process. The machine runs the other tests that load BPF programs, so a
recording works on it; without rights, and for processes that are no target, it must say so."""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import support

pytestmark = pytest.mark.root_bpf

FAKE_TORCH = support.REPO / "tests" / "programs" / "fake_torch" / "main.py"
STATES = {"ok", "degraded", "missing", "unknown"}
NO_RECORDING = 3
STANDS = "import time; print('ready', flush=True); time.sleep(600)"


def examine(dynprof, *options):
    done = dynprof.run("doctor", "--json", *options)
    return checked(done.rc, done.out, done.err)


def checked(rc, out, err):
    found = json.loads(out)
    assert found["version"] == 1 and err == ""
    checks = {check["name"]: check for check in found["checks"]}
    assert len(checks) == len(found["checks"])
    assert {check["state"] for check in checks.values()} <= STATES
    assert (rc == NO_RECORDING) == (found["recording"] == "none") == any(
        check["state"] == "missing" for check in checks.values()
    )
    assert rc in (0, NO_RECORDING)
    return found, checks


def by_setpriv(*arguments, program=support.BINARY, doctor=()):
    command = [support.tool("setpriv"), *arguments, program, "doctor", "--json", *map(str, doctor)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return checked(done.returncode, done.stdout, done.stderr)


def programs_loaded():
    """Ids of those that doctor loads."""
    return [program["id"] for program in support.bpf_programs() if program.get("name") == "doctor"]


def test_this_machine(dynprof):
    found, checks = examine(dynprof)
    assert found["pid"] is None and found["recording"] in ("full", "degraded")
    for name in ("btf", "ring-buffer", "bpf-helpers", "process-events", "cpu-clock", "capabilities"):
        assert checks[name]["state"] == "ok", checks[name]
        assert checks[name]["group"] in ("kernel", "machine")


def test_text_has_a_line_for_each_check(dynprof):
    _, checks = examine(dynprof)
    done = dynprof.run("doctor")
    assert done.rc == 0 and done.err == "", done
    shown = {
        words[1]: words[0]
        for words in map(str.split, done.out.splitlines())
        if words and words[0] in STATES
    }
    assert shown == {name: check["state"] for name, check in checks.items()}
    assert done.out.splitlines()[-1].startswith("A recording would work")


def test_leaves_no_program_behind(dynprof):
    examine(dynprof)
    # The kernel frees a program some time after its last user is gone.
    deadline = time.monotonic() + 10
    while programs_loaded() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert programs_loaded() == []


def test_a_plain_python(dynprof, spawn):
    target = spawn([sys.executable, "-c", STANDS])
    found, checks = examine(dynprof, "-p", target.pid)
    version = ".".join(map(str, sys.version_info[:3]))
    assert found["pid"] == target.pid
    assert f"CPython {version}" in checks["python"]["finding"]
    assert checks["python"]["state"] == checks["memory"]["state"] == "ok"
    assert checks["exact-phases"]["state"] == "ok"
    assert "not imported" in checks["torch"]["finding"]
    assert target.alive()


def test_torch_and_a_second_dynprof(dynprof, spawn, tmp_path):
    target = spawn([sys.executable, FAKE_TORCH, "forward"])
    _, checks = examine(dynprof, "-p", target.pid)
    assert "torch 2.13.0+fake" in checks["torch"]["finding"]
    assert checks["other-dynprof"]["finding"] == "no other dynprof-bpf records this process"
    other = dynprof.start("record", "-p", target.pid, "-o", tmp_path / "out")
    other.wait_for_err("^Sampling process")
    _, checks = examine(dynprof, "-p", target.pid)
    assert str(other.pid) in checks["other-dynprof"]["finding"]
    other.interrupt()
    assert other.wait().rc == 0


def test_a_torch_whose_names_moved(dynprof, spawn):
    moved = "import torch._guards; del torch._guards._TLS;" + STANDS
    target = spawn([sys.executable, "-c", moved], env={"PYTHONPATH": str(FAKE_TORCH.parent)})
    _, checks = examine(dynprof, "-p", target.pid)
    assert checks["torch"]["state"] == "degraded"
    assert "torch._guards has no _TLS" in checks["torch"]["finding"]


def test_a_newer_python(dynprof, spawn, tmp_path):
    program = tmp_path / "python3.16"
    shutil.copy(support.BUILD / "tests" / "programs" / "newer_python", program)
    target = spawn([program])
    found, checks = examine(dynprof, "-p", target.pid)
    python = checks["python"]
    assert python["state"] == "degraded" and found["recording"] == "degraded"
    assert "3.16" in python["finding"] and "3.10 to 3.15" in python["fix"]
    assert "native" in python["consequence"]


def test_what_is_no_target(dynprof, spawn):
    other = spawn(["sh", "-c", "echo ready; exec sleep 600"])
    _, checks = examine(dynprof, "-p", other.pid)
    assert checks["python"]["state"] == "missing"
    other.kill()
    _, checks = examine(dynprof, "-p", other.pid)
    assert checks["process"]["state"] == "missing" and checks["process"]["fix"]


def test_a_name_that_would_write_to_the_terminal(dynprof, spawn):
    named = "open('/proc/self/comm', 'w').write('\\x1b[31mred');" + STANDS
    target = spawn([sys.executable, "-c", named])
    done = dynprof.run("doctor", "-p", target.pid)
    assert done.rc == 0 and "\x1b" not in done.out and "\\x1b[31mred" in done.out


def test_without_root(spawn, tmp_path_factory):
    target = spawn([sys.executable, "-c", STANDS])
    # Where another user may execute it.
    folder = Path(tmp_path_factory.mktemp("program"))
    program = Path(shutil.copy(support.BINARY, folder))
    for part in (program, *program.parents[:3]):
        if part != Path("/tmp"):
            part.chmod(part.stat().st_mode | 0o055)
    nobody = ("--reuid", "65534", "--regid", "65534", "--clear-groups")
    _, checks = by_setpriv(*nobody, program=program, doctor=("-p", target.pid))
    assert checks["capabilities"]["state"] == "missing"
    assert "CAP_PERFMON" in checks["capabilities"]["finding"]
    assert checks["bpf-perf-event"]["state"] == "unknown"
    assert checks["memory"]["state"] == "missing"


def test_without_cap_sys_admin(dynprof):
    _, with_it = examine(dynprof)
    _, checks = by_setpriv("--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin")
    assert checks["bpf-perf-event"]["state"] == "ok"
    if "by links" in with_it["uprobes"]["finding"]:  # Linux 6.10: there it is not needed
        assert checks["uprobes"]["state"] == "ok"
        assert "uprobes" not in checks["capabilities"]["finding"]
    else:
        assert checks["uprobes"]["state"] == "degraded"
        assert "CAP_SYS_ADMIN (uprobes)" in checks["capabilities"]["finding"]


def test_bad_options(dynprof):
    for options in (["-p", "x"], ["-p", "1,2"], ["--jsn"], ["extra"]):
        done = dynprof.run("doctor", *options)
        assert done.rc == 2 and done.err.startswith("error: ") and done.out == "", done
