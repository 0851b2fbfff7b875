"""Targets with children, which tell what wait4 says of each.

    tree_job.py torch OUT.json     a cold compile by Inductor for the CPU: g++ and what it starts
    tree_job.py threads OUT.json   two threads that compile different functions, one after the other
    tree_job.py workers OUT.json   two compiles that give work to torch's compile workers, which start a child each
    tree_job.py plain OUT.json     fork without exec, an orphan of a double fork, posix_spawn, an exec
                                   chain, a child that outlives its parent
    tree_job.py hostile OUT.json   command lines with control characters, a megabyte of arguments, bytes
                                   that are no UTF-8, arguments overwritten by the process itself

Prints `ready <pid>`, waits for a line on stdin, runs, writes OUT.json:

    {"children": [{"pid", "cpu_s", "trace_id", "status"}], "compiles": [...], ...}

`cpu_s` of a child is what wait4 says: its own and that of the children it waited for. `trace_id` is the
compile open on the thread that waited, null: none. The job `plain` also has {"told": {..., "large": pid},
"large_bytes"}: a child that fills that much memory.
"""

import json
import os
import subprocess
import sys
import threading
import time

import worker_task
from worker_task import SPIN, spin

CHILDREN = []
REAL_WAIT4 = os.wait4


def trace_id():
    guards = sys.modules.get("torch._guards")
    context = guards and guards.CompileContext.try_get()
    return str(context.compile_id) if context else None


def noting_waitpid(pid, options):
    found, status, usage = REAL_WAIT4(pid, options)
    if found:
        cpu = usage.ru_utime + usage.ru_stime
        CHILDREN.append({"pid": found, "cpu_s": cpu, "trace_id": trace_id(), "status": status})
    return found, status


def note_waits():
    os.waitpid = noting_waitpid
    if hasattr(subprocess, "_del_safe"):  # what Popen.poll() uses, from 3.11 on
        subprocess._del_safe.waitpid = noting_waitpid


def compile_one(function, size):
    import torch

    torch.compile(function)(torch.ones(size))


def torch_job():
    def first(x):
        return (x * 2 + 1).sin().sum()

    def second(x):
        return (x.cos() * x + 3).exp().mean()

    compile_one(first, 1000)
    compile_one(second, 2000)
    time.sleep(1)  # what torch made is read when nothing has compiled for a moment
    return {}


def threads_job():
    ids = {}

    def named(name, scale):
        def function(x):
            return (x * scale).sin().sum() + x.mean()

        function.__name__ = name
        ids[name] = threading.get_native_id()
        compile_one(function, 1000 + scale)

    threads = [
        threading.Thread(target=named, args=(f"thread_{number}", number + 2)) for number in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"threads": ids}


def workers_job(pool):
    """A backend of ours, since Inductor has work for its workers only where there is Triton."""
    import torch

    told = []

    def backend(graph, inputs):
        seconds = 0.4 * (len(told) + 1)
        told.append({"trace_id": trace_id(), **pool.submit(worker_task.work, seconds).result()})
        return graph.forward

    torch.compile(lambda x: x + 1, backend=backend)(torch.ones(4))
    torch.compile(lambda x: x * 2, backend=backend)(torch.ones(4))
    # Outside of any compile.
    told.append({"trace_id": None, **pool.submit(worker_task.work, 0.3).result()})
    return {"work": told}


def compile_workers():
    from torch._inductor.compile_worker.subproc_pool import SubprocPool

    return SubprocPool(1)


def plain_job():
    told = {}
    pid = os.fork()
    if pid == 0:
        spin(0.3)
        os._exit(3)
    told["fork"] = pid
    os.waitpid(pid, 0)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:  # its child is an orphan at once
        grandchild = os.fork()
        if grandchild == 0:
            spin(0.3)
            os._exit(0)
        os.write(writer, str(grandchild).encode())
        os._exit(0)
    told["middle"] = pid
    os.waitpid(pid, 0)
    told["orphan"] = int(os.read(reader, 100))
    told["spawn"] = os.posix_spawn(
        sys.executable, [sys.executable, "-c", SPIN.format(0.3)], os.environ
    )
    os.waitpid(told["spawn"], 0)
    large_bytes = 300 << 20
    told["large"] = os.posix_spawn(
        sys.executable, [sys.executable, "-c", f"bytearray(b'x') * {large_bytes}"], os.environ
    )
    os.waitpid(told["large"], 0)
    chain = "exec sh -c 'exec sleep 0.1'"
    with subprocess.Popen(["/bin/sh", "-c", chain]) as child:
        told["chain"] = child.pid
    pid = os.fork()
    if pid == 0:
        time.sleep(0.5)
        os.kill(os.getpid(), 9)
    told["killed"] = pid
    os.waitpid(pid, 0)
    quiet = subprocess.DEVNULL  # who reads our output need not wait for it
    told["outlives"] = subprocess.Popen(["/bin/sleep", "60"], stdout=quiet, stderr=quiet).pid
    return {"told": told, "large_bytes": large_bytes}


def hostile_job():
    told = {}

    def run(name, arguments):
        with subprocess.Popen(arguments, stdout=subprocess.DEVNULL) as child:
            told[name] = child.pid

    run("control", ["/bin/true", "\x1b[2J\x07\r\n", "a\tb"])
    run("utf8", ["/bin/true", b"\xff\xfe\xc3("])
    run("empty", ["/bin/true", "", "", "x"])
    run("long", ["/bin/true"] + ["y" * 100_000] * 10)
    overwrite = (
        "import ctypes, time\n"
        "libc = ctypes.CDLL(None)\n"
        "libc.prctl(15, b'\\x1b]0;x\\x07', 0, 0, 0)\n"  # PR_SET_NAME
    )
    run("renamed", [sys.executable, "-c", overwrite])
    return {"told": told}


def main():
    verb, out = sys.argv[1:3]
    note_waits()
    if verb in ("torch", "threads", "workers"):
        import torch  # noqa: F401
    pool = compile_workers() if verb == "workers" else None
    print("ready", os.getpid(), flush=True)
    sys.stdin.readline()
    jobs = {
        "torch": torch_job,
        "threads": threads_job,
        "workers": lambda: workers_job(pool),
        "plain": plain_job,
        "hostile": hostile_job,
    }
    result = jobs[verb]()
    with open(out, "w") as file:
        json.dump({"children": CHILDREN, **result}, file)
    if pool:
        pool.shutdown()
    print("done", flush=True)


if __name__ == "__main__":
    main()
