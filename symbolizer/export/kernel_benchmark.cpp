#include "symbolizer/export/kernel_benchmark.h"

namespace dynprof {

std::string_view kernel_benchmark() {
  return R"py("""Times one kernel of a wrapper that Inductor generated:

    python3 benchmark_kernel.py WRAPPER.py KERNEL [KERNEL ...]

The whole wrapper runs once with random inputs; then the kernel runs again and again with the arguments of its first
call. Prints what Inductor's benchmarks of kernels print (TORCHINDUCTOR_BENCHMARK_KERNEL=1): the median time of a run,
the bytes that it reads and writes, and bytes per second.
"""

import importlib.util
import statistics
import sys
import time

import torch

SECONDS = 0.5  # of runs, of each kernel
LEAST_RUNS = 10


class Kernel:
    """Stands for a kernel in the wrapper, and keeps the arguments of its first call."""

    def __init__(self, kernel):
        self.kernel = kernel
        self.again = None
        self.arguments = ()

    def __getattr__(self, name):
        return getattr(self.kernel, name)

    def call(self, function, arguments, keywords):
        if self.again is None:
            self.arguments = arguments
            self.again = lambda: function(*arguments, **keywords)
        return function(*arguments, **keywords)

    def __call__(self, *arguments, **keywords):  # C++
        return self.call(self.kernel, arguments, keywords)

    def run(self, *arguments, **keywords):  # Triton
        return self.call(self.kernel.run, arguments, keywords)

    def tensors(self):
        return [one for one in self.arguments if isinstance(one, torch.Tensor)]

    def gigabytes(self):
        known = (getattr(self.kernel, "inductor_meta", None) or {}).get("kernel_num_gb")
        if known is not None:
            return known
        names = getattr(getattr(self.kernel, "fn", None), "arg_names", None) or []
        size = sum(one.numel() * one.element_size() for one in self.tensors())
        for name, one in zip(names, self.arguments):  # read and written
            if name.startswith("in_out_ptr") and isinstance(one, torch.Tensor):
                size += one.numel() * one.element_size()
        return size / 1e9

    def milliseconds(self):
        device = next((one.device for one in self.tensors() if one.device.type != "cpu"), None)
        for _ in range(3):
            self.again()
        times = []
        until = time.perf_counter() + SECONDS
        while len(times) < LEAST_RUNS or time.perf_counter() < until:
            if device is None:
                begin = time.perf_counter()
                self.again()
                times.append((time.perf_counter() - begin) * 1e3)
                continue
            begin, end = (torch.Event(device=device, enable_timing=True) for _ in range(2))
            begin.record()
            self.again()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end))
        return statistics.median(times)


def main(path, names):
    spec = importlib.util.spec_from_file_location("wrapper", path)
    wrapper = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(wrapper)
    for name in names:
        if not hasattr(wrapper, name):
            sys.exit(f"error: {path} has no kernel {name}\nhint: index.md lists its kernels")
        setattr(wrapper, name, Kernel(getattr(wrapper, name)))
    wrapper.call(list(wrapper.get_args()))
    for name in names:
        kernel = getattr(wrapper, name)
        if kernel.again is None:
            sys.exit(f"error: {path} does not run {name} with these inputs\nhint: index.md says how often it does")
        ms, gigabytes = kernel.milliseconds(), kernel.gigabytes()
        print(f"{name}: {ms:.6f}ms    {gigabytes:.6f}GB    {gigabytes / (ms / 1e3):.2f}GB/s")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: python3 benchmark_kernel.py WRAPPER.py KERNEL [KERNEL ...]")
    main(sys.argv[1], sys.argv[2:])
)py";
}

}  // namespace dynprof
