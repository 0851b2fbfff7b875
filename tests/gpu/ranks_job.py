"""A rank of a training job whose ranks share one GPU, with a DataLoader's worker: ranks_job.py FOLDER, by torchrun.

It makes FOLDER/ready-RANK once everything is compiled, and steps until there is FOLDER/stop.
"""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist


def batches():
    """A row of endless batches from a process of its own."""

    class Batches(torch.utils.data.IterableDataset):
        def __iter__(self):
            while True:
                yield torch.randn(64, 256)

    return iter(torch.utils.data.DataLoader(Batches(), batch_size=None, num_workers=1))


def main():
    folder, rank = Path(sys.argv[1]), int(os.environ["RANK"])
    # NCCL refuses two ranks on one GPU.
    dist.init_process_group("gloo")
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.LayerNorm(256)).cuda()

    @torch.compile
    def loss_of(x):
        return model(x).square().mean()

    steps = 0
    done = torch.zeros(1)
    for batch in batches():
        loss_of(batch.cuda()).backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad = None
        steps += 1
        if steps == 5:
            (folder / f"ready-{rank}").touch()
        # All ranks stop at the same step.
        done[0] = (folder / "stop").exists()
        dist.all_reduce(done, op=dist.ReduceOp.MAX)
        if done.item():
            break
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
