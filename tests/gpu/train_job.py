"""A torch.compile training job on a real GPU, the same work at each request.

    train_job.py            waits for lines on stdin:
        work PATH           20 steps; PATH "": bare; else under torch.profiler, trace to PATH
        steps N             N steps
        exit

The work: a compiled model with Inductor and Triton kernels, forward and backward; a matrix product
(cuBLAS); eager operations; a compiled function with CUDA graphs (mode="reduce-overhead"); copies both
ways. Everything was compiled, and the graphs captured, before it says `ready`.
"""

import os

import torch

from told_lines import lines

STEPS = 20


def make():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(512, 1024), torch.nn.GELU(), torch.nn.LayerNorm(1024),
        torch.nn.Linear(1024, 512),
    ).cuda()  # fmt: skip
    compiled = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(256, 512, device="cuda")

    @torch.compile(mode="reduce-overhead")
    def graphed(y):
        return (y.sin() @ y.T).relu().sum()

    def work(steps=STEPS):
        for _ in range(steps):
            optimizer.zero_grad(set_to_none=True)
            loss = compiled(x).square().mean()
            loss.backward()
            optimizer.step()
            torch.compiler.cudagraph_mark_step_begin()
            graphed(x)
            (x @ x.T).add_(1).mul_(2)
            x.cpu().cuda()
        torch.cuda.synchronize()

    return work


def main():
    work = make()
    for _ in range(3):
        work()
    print(f"ready {os.getpid()}", flush=True)
    for line in lines():
        verb, _, path = line.strip().partition(" ")
        if verb == "exit":
            return
        if verb == "steps":
            work(int(path))
        elif path:
            activities = torch.profiler.ProfilerActivity
            with torch.profiler.profile(activities=[activities.CPU, activities.CUDA]) as profiler:
                work()
            profiler.export_chrome_trace(path)
        else:
            work()
        print("done", flush=True)


if __name__ == "__main__":
    main()
