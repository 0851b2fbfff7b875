"""A training step through Inductor, whose caches an earlier run with the same TORCHINDUCTOR_CACHE_DIR may have filled:
warm.py OUT.json"""

import sys

import account
import encoder
import torch


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = encoder.Encoder(layers=1)
    step = torch.compile(model)
    account.wait_for_word()
    step(encoder.tokens(2, 16)).square().mean().backward()
    account.write(sys.argv[1])


main()
