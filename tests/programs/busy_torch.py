"""A torch process that is never in the same place twice: one thread compiles again and again, another
computes, the main thread sorts with a key function in Python.

Prints `ready` once the first compile is done, and works until it is killed.
"""

import threading

import torch


def compute():
    x = torch.randn(32, 32)
    while True:
        y = x
        for _ in range(10):
            y = torch.relu(y @ x).softmax(-1)


def compile_again(done):
    def model(x):
        return (x.sin() + x.cos()).relu().sum()

    x = torch.randn(16, requires_grad=True)
    while True:
        torch._dynamo.reset()
        torch.compile(model, backend="aot_eager")(x).backward()
        done.set()


def main():
    torch.set_num_threads(1)
    done = threading.Event()
    threading.Thread(target=compile_again, args=(done,), daemon=True).start()
    threading.Thread(target=compute, daemon=True).start()
    done.wait()
    print("ready", flush=True)
    while True:
        sorted(range(500), key=lambda number: -number)


main()
