"""Serves requests with Triton kernels that are compiled and tuned when a request first needs them: a real Triton, for a
GPU that is not there. A stand-in takes the place of the driver: it loads and launches nothing, and a run of a
configuration takes 60 ms.

    triton_job.py FILE

Prints "ready", compiles after a line comes on stdin, then writes what Triton itself says of each compilation, and how
long each request took, to FILE as JSON, prints "done" and waits for another line."""

import json
import sys
import time

import torch
import triton
import triton.language as tl
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

TUNED_RUN_S = 0.06


class Utils:
    def get_device_properties(self, _device):
        return {"max_shared_mem": 200_000, "multiprocessor_count": 100, "warpSize": 32}

    def load_binary(self, *_):
        return 1, 1, 32, 0, 1024

    def unload_module(self, *_):
        pass


class Launcher:
    def __init__(self, _source, _metadata):
        pass

    def __call__(self, *_):
        pass


class StandIn:
    launcher_cls = Launcher
    utils = Utils()

    def get_current_device(self):
        return 0

    def set_current_device(self, _device):
        pass

    def get_current_stream(self, _device):
        return 0

    def get_current_target(self):
        return GPUTarget("cuda", 80, 32)

    def get_active_torch_device(self):
        return torch.device("cpu")

    def get_empty_cache_for_benchmark(self):
        return torch.empty(1)

    def clear_cache(self, _cache):
        pass

    def get_benchmarker(self):
        def benchmark(kernel_call, quantiles, **_):
            kernel_call()
            end = time.monotonic() + TUNED_RUN_S
            while time.monotonic() < end:
                pass
            return [TUNED_RUN_S] * len(quantiles)

        return benchmark


@triton.jit
def add_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=mask) + 1, mask=mask)


@triton.autotune(
    configs=[triton.Config({"BLOCK": size}) for size in (64, 128, 256)],
    key=["n"],
)
@triton.jit
def softmax_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=float("-inf"))
    x = tl.exp(x - tl.max(x, 0))
    tl.store(y_ptr + at, x / tl.sum(x, 0), mask=at < n)


def answer(x, y, block):
    add_kernel[(1,)](x, y, x.numel(), BLOCK=block)


def answer_softmax(x, y):
    softmax_kernel[(1,)](x, y, x.numel())


def main():
    driver.set_active(StandIn())
    compilations = []

    def listener(src, metadata, metadata_group, times, cache_hit):
        stages = dict(times.lowering_stages)
        compilations.append({"kernel": src.fn.__name__, "us": times.total, "stages": stages, "cache_hit": cache_hit})

    knobs.compilation.listener = listener
    x, y = torch.ones(4096), torch.empty(4096)
    print("ready", flush=True)
    sys.stdin.readline()
    requests = []

    def request(function, *arguments):
        begin = time.monotonic_ns()
        function(*arguments)
        took = time.monotonic_ns() - begin
        requests.append({"function": function.__name__, "ns": took, "line": function.__code__.co_firstlineno + 1})

    for block in (128, 256, 512, 1024):
        request(answer, x, y, block)
        end = time.monotonic() + 0.1  # work between two requests
        while time.monotonic() < end:
            y.add_(x)
    request(answer, x, y, 128)  # compiled already
    request(answer_softmax, x, y)
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump({"compilations": compilations, "requests": requests}, file)
    print("done", flush=True)
    sys.stdin.readline()


main()
