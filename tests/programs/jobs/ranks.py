"""Two ranks of DDP on the CPU, as torchrun starts them: ranks.py FOLDER

The parent prints `ready <pid>`, waits for a line, starts the ranks and writes nothing; each rank writes
FOLDER/rank-N.json. Rank 1 gets one batch of another size, and compiles once more.
"""

import os
import socket
import subprocess
import sys

RANKS, WIDTH = 2, 512


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def parent(folder):
    print("ready", os.getpid(), flush=True)
    sys.stdin.readline()
    port = str(free_port())
    ranks = []
    for rank in range(RANKS):
        environment = dict(
            os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS), MASTER_ADDR="127.0.0.1",
            MASTER_PORT=port,
        )
        ranks.append(subprocess.Popen([sys.executable, __file__, folder], env=environment))
    ends = [rank.wait() for rank in ranks]
    print("done", flush=True)
    sys.exit(max(map(abs, ends)))


def rank_main(folder, rank):
    import account
    import torch
    import torch.distributed as dist

    torch.manual_seed(0)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(4))

        def forward(self, x):
            for layer in self.layers:
                x = torch.relu(layer(x))
            return x

    # Buckets of a layer each, so that DDPOptimizer splits the graph.
    model = torch.nn.parallel.DistributedDataParallel(Net(), bucket_cap_mb=1.1)
    step = torch.compile(model, backend="aot_eager", dynamic=False)
    for size in (8, 8, 16 if rank == 1 else 8, 8):
        step(torch.ones(size, WIDTH)).sum().backward()
    dist.barrier()
    account.write(os.path.join(folder, f"rank-{rank}.json"))
    os._exit(0)  # torch 2.13 may wait for ever for its gloo thread, which waits for the GIL


if "RANK" in os.environ:
    rank_main(sys.argv[1], int(os.environ["RANK"]))
else:
    parent(sys.argv[1])
