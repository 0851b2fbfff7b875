"""A launcher like torchrun, without CUDA, and the children of a distributed job on the fake GPU of tests/fakes.

    gpu_ranks_job.py FAKES [--torch] [--cuda] ROLE...

A role is a child, an executable of its own unless it is a fork. Each launches kernels of its name for ever:
  rank           RANK is 0 for the first one, and so on; with --torch it compiles a function
  late           a rank that starts once a line comes on stdin
  forked         the first rank has a fork, which is a DataLoader's worker and maps CUDA as its parent does
  data           a spawned DataLoader's worker: named as torch names it
  compile        a compile worker: its command line is one of torch's
  autotune       the process that times candidates of kernels, by its command line too
With --cuda the launcher itself uses CUDA, and has imported torch.
Prints `child ROLE PID` for each, then `ready`. Ends when stdin is closed, and its children with it.
"""

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# What torch runs for them, beneath where it is installed.
SCRIPTS = {
    "compile": "torch/_inductor/compile_worker/__main__.py",
    "autotune": "torch/_inductor/__autotune_main__.py",
}
PR_SET_NAME, PR_SET_PDEATHSIG, SIGKILL = 15, 1, 9


def work(fakes, role, torch):
    """In a child."""
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    from gpu_job import Cuda

    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_PDEATHSIG, SIGKILL)
    cuda = Cuda(fakes)
    cuda.init()
    if torch:
        import torch

        torch.compile(lambda x: x.sin() + int(os.environ["RANK"]), backend="eager")(torch.ones(4))
    if role == "forked":
        child = os.fork()
        role = "rank" if child else "data"
        if child:
            print(f"child forked {child}", flush=True)
    else:
        child = os.getpid()
    if role == "data":
        libc.prctl(PR_SET_NAME, b"pt_data_worker")
    if child:
        print(f"child {role} {os.getpid()}", flush=True)
    name = f"_Z{len(role) + 1}{role}{os.environ.get('RANK', '0')}Pf"
    while True:
        cuda.launch(name)
        time.sleep(0.01)


def start(fakes, role, rank, torch, folder):
    script, arguments = Path(__file__).resolve(), []
    if role in SCRIPTS:
        script = folder / SCRIPTS[role]
        script.parent.mkdir(parents=True, exist_ok=True)
        for name in (Path(__file__).name, "gpu_job.py"):
            shutil.copy(Path(__file__).resolve().parent / name, script.parent / name)
        shutil.copy(Path(__file__).resolve(), script)
        arguments = [f"--parent={os.getpid()}"]
    environment = {**os.environ, "CUDA_INJECTION64_PATH": "none"}  # that of the launcher is not for it
    if rank is not None:
        environment["RANK"] = str(rank)
    words = [sys.executable, script, "--work", fakes, role, "torch" if torch else "", *arguments]
    child = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True)
    for _ in range(2 if role == "forked" else 1):
        print(child.stdout.readline(), end="", flush=True)


def main():
    if sys.argv[1] == "--work":
        work(sys.argv[2], sys.argv[3], bool(sys.argv[4]))
    fakes, torch, ranks = sys.argv[1], "--torch" in sys.argv, 0
    late = []
    if "--cuda" in sys.argv:
        from gpu_job import Cuda, make_training

        cuda = Cuda(fakes)
        cuda.init()
        make_training(cuda)(1)
    with tempfile.TemporaryDirectory() as folder:
        for role in (word for word in sys.argv[2:] if not word.startswith("--")):
            rank = None if role in ("data", *SCRIPTS) else ranks
            ranks += rank is not None
            if role == "late":
                late.append(rank)
            else:
                start(fakes, role, rank, torch, Path(folder))
        print("ready", flush=True)
        for _ in sys.stdin:
            start(fakes, "rank", late.pop(0), torch, Path(folder))


if __name__ == "__main__":
    main()
