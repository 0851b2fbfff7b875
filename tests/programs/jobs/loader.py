"""Training with a DataLoader that is too slow: loader.py OUT.json

Adds to the account: "waited_s": for the next batch, and "workers": the pids of the loader's processes.
"""

import os
import sys
import time

import account
import torch

BATCHES, EACH_S = 12, 0.25


class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return BATCHES

    def __getitem__(self, index):
        time.sleep(EACH_S)
        return torch.full((8,), float(index)), torch.tensor(os.getpid())


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    step = torch.compile(lambda x: model(x).square().mean(), backend="aot_eager")
    account.wait_for_word()
    waited, workers = 0.0, set()
    batches = iter(torch.utils.data.DataLoader(Slow(), batch_size=1, num_workers=1))
    while True:
        came = time.monotonic()
        batch = next(batches, None)
        waited += time.monotonic() - came
        if batch is None:
            break
        data, pid = batch
        workers.add(int(pid))
        step(data).backward()
        optimizer.step()
        optimizer.zero_grad()
    account.write(sys.argv[1], waited_s=waited, workers=sorted(workers))


main()
