"""A Python job that launches work on the fake GPU of tests/fakes, driven by lines on stdin.

    gpu_job.py FAKES [--torch] [--late] [--no-cupti] [--polls]

FAKES is the folder of the fake libraries. --torch: imports torch, and defines custom ops that launch
(`train`). --late: CUDA is not initialised before `init`. --no-cupti: maps no libcupti. --polls: the
main thread runs Python code a hundred times a second while it waits for a line. Prints `ready <pid>`; the n-th
line is answered by `did n VERB`, when its work on the GPU has ended:

    init | launch N | lines N | made N | deep FRAMES N | graph N KERNELS | copy N | sync | threads COUNT N
    made N               3 N launches of each of two kernels, by functions made in the memory of the ones before
    multiply N           kernels of a library, by the driver: N of each of two
    scale NAME N         N of one that the runtime launches, with this name in the driver
    train STEPS          with --torch
    streams STEPS        with --torch: a compiled function that uses two streams
    subscribe | unsubscribe | log PATH | exit
    alone NAME           another CUPTI client of this name, which allows no other
    load PATH            maps a library
    background COUNT     so many threads launch until the end
    fork N               a child launches N and exits; `bad N` comes first if it could not

`train` runs two compiled functions, forward and backward, whose custom ops launch kernels named
first_forward, first_backward, second_forward and second_backward: trace ids 0/0 and 1/0. `streams` launches a kernel of
2 ms on a stream of its own and then copies 4,096 bytes on the default stream, at each step; in the first one it is for
20 ms in torch's phase of recording a CUDA graph.
"""

import argparse
import ctypes
import os
import select
import sys
import threading
import time


class Dim3(ctypes.Structure):
    _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]


class Function(ctypes.Structure):
    _fields_ = [
        ("module", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("duration_ns", ctypes.c_uint64),
    ]


class Graph(ctypes.Structure):
    _fields_ = [
        ("id", ctypes.c_uint32),
        ("kernels", ctypes.c_uint32),
        ("function", ctypes.POINTER(Function)),
    ]


class SubscriberParams(ctypes.Structure):
    _fields_ = [
        ("bytes", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("holder", ctypes.c_char_p),
        ("holder_bytes", ctypes.c_size_t),
        ("allow_several", ctypes.c_uint8),
    ]


class Cuda:
    def __init__(self, folder, cupti=True):
        self.driver = ctypes.CDLL(os.path.join(folder, "libcuda.so.1"), ctypes.RTLD_GLOBAL)
        self.runtime = ctypes.CDLL(os.path.join(folder, "libcudart.so.13"))
        self.cublas = ctypes.CDLL(os.path.join(folder, "libcublasLt.so.13"))
        if cupti:
            self.cupti = ctypes.CDLL(os.path.join(folder, "libcupti.so.13"), ctypes.RTLD_GLOBAL)
        self.runtime.cudaLaunchKernel.argtypes = [
            ctypes.c_void_p, Dim3, Dim3, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p
        ]  # fmt: skip
        self.functions = {}

    def init(self):
        self.driver.cuInit(0)
        self.driver.fake_cuda_log("FAKE_CUDA_NO_LOG" not in os.environ)

    def subscribe(self, name=None):
        """Another CUPTI client, as Nsight or torch.profiler is. One with a name is one of CUDA 13.3."""
        self.subscriber = ctypes.c_void_p()
        self.ignore = ctypes.CFUNCTYPE(
            None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p
        )(lambda *_: None)
        if name:
            wanted = SubscriberParams(ctypes.sizeof(SubscriberParams), name.encode())
            self.cupti.cuptiSubscribe_v2(
                ctypes.byref(self.subscriber), self.ignore, None, ctypes.byref(wanted)
            )
        else:
            self.cupti.cuptiSubscribe(ctypes.byref(self.subscriber), self.ignore, None)

    def unsubscribe(self):
        self.cupti.cuptiUnsubscribe(self.subscriber)

    def function(self, name):
        if name not in self.functions:
            self.functions[name] = Function(None, name.encode(), 5000)
        return self.functions[name]

    def launch(self, name, stream=None):
        self.runtime.cudaLaunchKernel(
            ctypes.addressof(self.function(name)), Dim3(8, 1, 1), Dim3(256, 1, 1), None, 0, stream
        )

    def copy(self, kind):
        self.runtime.cudaMemcpyAsync(None, None, ctypes.c_size_t(4096), kind, None)


def launch_outer(cuda, count):
    for _ in range(count):
        launch_inner(cuda)


def launch_inner(cuda):
    cuda.launch("_Z5plainPf")


def multiply(cuda, count):
    for _ in range(count):
        cuda.cublas.fake_cublas_multiply()
        cuda.cublas.fake_cublas_multiply_ex()


def scale(cuda, name, count):
    for _ in range(count):
        cuda.cublas.fake_cublas_scale(name)


def launch_from_two_lines(cuda, count):
    for _ in range(count):
        launch_by_name(cuda, "_Z5firstPf")
        launch_by_name(cuda, "_Z6secondPf")


def launch_by_name(cuda, name):
    launch_inner_by_name(cuda, name)


def launch_inner_by_name(cuda, name):
    cuda.launch(name)


def launch_from_made_code(cuda, count):
    source = "def made_for_{0}():\n for _ in range(3):\n  cuda.launch(name)\n  time.sleep(0.02)\nmade_for_{0}()"
    # Interned and kept: before 3.12 names are how two code objects at one address are told apart.
    kept = [sys.intern(f"made_for_{end}") for end in ("first", "other") if sys.version_info < (3, 12)]
    for i in range(2 * count):
        name = ("_Z5firstPf", "_Z6secondPf")[i % 2]
        names = {"cuda": cuda, "name": name, "time": time}
        exec(source.format(("first", "other")[i % 2]), names)
        names.clear()  # frees the function
    del kept


def launch_deep(cuda, depth, count):
    if depth > 0:
        launch_deep(cuda, depth - 1, count)
    else:
        launch_outer(cuda, count)


def launch_on_threads(cuda, threads, count):
    started = [
        threading.Thread(target=launch_outer, args=(cuda, count)) for _ in range(threads)
    ]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()


def launch_for_ever(cuda, count):
    def launch_now_and_then():
        while True:
            cuda.launch("_Z10backgroundPf")
            time.sleep(0.0002)

    for _ in range(count):
        threading.Thread(target=launch_now_and_then, daemon=True).start()


def launch_in_child(cuda, count):
    child = os.fork()
    if child == 0:
        launch_outer(cuda, count)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    if status != 0:
        print(f"bad {status}", flush=True)


def make_training(cuda):
    import torch

    def make_op(name):
        @torch.library.custom_op(f"fake_gpu::{name}_backward", mutates_args=())
        def backward_op(gradient: torch.Tensor) -> torch.Tensor:
            cuda.launch(f"{name}_backward")
            return gradient * 2

        @torch.library.custom_op(f"fake_gpu::{name}_forward", mutates_args=())
        def forward_op(x: torch.Tensor) -> torch.Tensor:
            cuda.launch(f"{name}_forward")
            return x * 2

        backward_op.register_fake(torch.empty_like)
        forward_op.register_fake(torch.empty_like)
        forward_op.register_autograd(lambda context, gradient: backward_op(gradient))
        return forward_op

    first_op, second_op = make_op("first"), make_op("second")

    @torch.compile(backend="aot_eager")
    def first(x):
        return first_op(x.sin()).sum()

    @torch.compile(backend="aot_eager")
    def second(x):
        return second_op(x.cos()).sum()

    x = torch.ones(16, requires_grad=True)

    def train(steps):
        for _ in range(steps):
            first(x).backward()
            second(x).backward()

    return train


def make_use_of_streams(cuda):
    import torch
    from torch._dynamo.utils import dynamo_timed

    stream = ctypes.c_void_p()
    cuda.driver.cuStreamCreate(ctypes.byref(stream), 0)
    cuda.functions["long"] = Function(None, b"long", 2_000_000)

    recorded = []

    @torch.library.custom_op("fake_gpu::two_streams", mutates_args=())
    def two_streams_op(x: torch.Tensor) -> torch.Tensor:
        if not recorded:
            recorded.append(True)
            with dynamo_timed("CUDAGraphNode.record"):
                time.sleep(0.02)
        cuda.launch("long", stream)
        cuda.copy(1)
        return x * 2

    two_streams_op.register_fake(torch.empty_like)

    @torch.compile(backend="aot_eager")
    def two_streams(x):
        return two_streams_op(x.tan())

    def use_streams(steps):
        x = torch.ones(16)
        for _ in range(steps):
            two_streams(x)
            cuda.driver.cuStreamSynchronize(stream)

    return use_streams


def lines(polls):
    """Those of stdin, one at a time."""
    while True:
        while polls and not select.select([0], [], [], 0.01)[0]:
            pass
        line = b""
        while not line.endswith(b"\n"):
            byte = os.read(0, 1)
            if not byte:
                return
            line += byte
        yield line.decode()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("fakes")
    parser.add_argument("--torch", action="store_true")
    parser.add_argument("--late", action="store_true")
    parser.add_argument("--no-cupti", action="store_true")
    parser.add_argument("--polls", action="store_true")
    options = parser.parse_args()
    train = None
    names = []  # that the driver points to
    cuda = None if options.late else Cuda(options.fakes, not options.no_cupti)
    if cuda:
        cuda.init()
    if options.torch:
        train = make_training(cuda)
    print(f"ready {os.getpid()}", flush=True)
    for number, line in enumerate(lines(options.polls), 1):
        verb, *words = line.split()
        if verb == "exit":
            return
        if verb == "init":
            cuda = Cuda(options.fakes)
            cuda.init()
        elif verb == "launch":
            launch_outer(cuda, int(words[0]))
        elif verb == "multiply":
            multiply(cuda, int(words[0]))
        elif verb == "scale":
            names.append(words[0].encode())
            scale(cuda, names[-1], int(words[1]))
        elif verb == "lines":
            launch_from_two_lines(cuda, int(words[0]))
        elif verb == "made":
            launch_from_made_code(cuda, int(words[0]))
        elif verb == "threads":
            launch_on_threads(cuda, int(words[0]), int(words[1]))
        elif verb == "background":
            launch_for_ever(cuda, int(words[0]))
        elif verb == "fork":
            launch_in_child(cuda, int(words[0]))
        elif verb == "deep":
            launch_deep(cuda, int(words[0]), int(words[1]))
        elif verb == "graph":
            graph = Graph(9, int(words[1]), ctypes.pointer(cuda.function("_Z4nodePf")))
            for _ in range(int(words[0])):
                cuda.runtime.cudaGraphLaunch(ctypes.byref(graph), None)
        elif verb == "copy":
            for i in range(int(words[0])):
                cuda.copy(1 + i % 3)
        elif verb == "subscribe":
            cuda.subscribe()
        elif verb == "alone":
            cuda.subscribe(words[0])
        elif verb == "load":
            ctypes.CDLL(words[0])
        elif verb == "unsubscribe":
            cuda.unsubscribe()
        elif verb == "sync":
            cuda.runtime.cudaDeviceSynchronize()
        elif verb == "train":
            train(int(words[0]))
        elif verb == "streams":
            make_use_of_streams(cuda)(int(words[0]))
        elif verb == "log":
            cuda.driver.fake_cuda_write_log(words[0].encode())
        if cuda:
            cuda.driver.fake_cuda_finish()  # what still runs when a recording ends is not in it
        print(f"did {number} {verb}", flush=True)


if __name__ == "__main__":
    main()
