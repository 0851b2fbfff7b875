/* A CUDA runtime over the fake driver. A kernel's host pointer is its struct fake_function, or was registered. */
#include "tests/fakes/fake_cuda.h"

#define EXPORT __attribute__((visibility("default")))

static uint64_t address(const void* pointer) { return (uint64_t)(uintptr_t)pointer; }

static struct {
  const void* host;
  CUfunction function;
} registered[8];

EXPORT void fake_cuda_register(const void* f, CUfunction function) {
  for (int i = 0; i < 8; ++i) {
    if (registered[i].host && registered[i].host != f) continue;
    registered[i].host = f;
    registered[i].function = function;
    return;
  }
}

static CUfunction function_of(const void* f) {
  for (int i = 0; i < 8 && registered[i].host; ++i)
    if (registered[i].host == f) return registered[i].function;
  return (CUfunction)(uintptr_t)f;
}

EXPORT int cudaLaunchKernel(const void* f, dim3_c grid, dim3_c block, void** params, size_t shared,
                            CUstream stream) {
  CUfunction function = function_of(f);
  struct fake_call call;
  fake_cuda_enter(&call, kFakeRuntime, 211, "cudaLaunchKernel", function->name);
  const int result = cuLaunchKernel(function, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                                    (unsigned)shared, stream, params, NULL);
  return fake_cuda_exit(&call, result);
}

/* CUDA 13's <<<>>> ends here; the real one is a jump to cudaLaunchKernel, too. */
EXPORT int __cudaLaunchKernel(const void* f, dim3_c grid, dim3_c block, void** params,
                              size_t shared, CUstream stream) {
  return cudaLaunchKernel(f, grid, block, params, shared, stream);
}

EXPORT int cudaGraphLaunch(CUgraphExec graph, CUstream stream) {
  struct fake_call call;
  fake_cuda_enter(&call, kFakeRuntime, 311, "cudaGraphLaunch", NULL);
  return fake_cuda_exit(&call, cuGraphLaunch(graph, stream));
}

EXPORT int cudaMemcpyAsync(void* to, const void* from, size_t bytes, int kind, CUstream stream) {
  struct fake_call call;
  int result;
  fake_cuda_enter(&call, kFakeRuntime, 41, "cudaMemcpyAsync", NULL);
  if (kind == 1)
    result = cuMemcpyHtoDAsync_v2(address(to), from, bytes, stream);
  else if (kind == 2)
    result = cuMemcpyDtoHAsync_v2(to, address(from), bytes, stream);
  else
    result = cuMemcpyDtoDAsync_v2(address(to), address(from), bytes, stream);
  return fake_cuda_exit(&call, result);
}

EXPORT int cudaMemsetAsync(void* to, int value, size_t bytes, CUstream stream) {
  struct fake_call call;
  fake_cuda_enter(&call, kFakeRuntime, 51, "cudaMemsetAsync", NULL);
  const int result = cuMemsetD8Async(address(to), (unsigned char)value, bytes, stream);
  return fake_cuda_exit(&call, result);
}

EXPORT int cudaStreamSynchronize(CUstream stream) {
  struct fake_call call;
  fake_cuda_enter(&call, kFakeRuntime, 131, "cudaStreamSynchronize", NULL);
  return fake_cuda_exit(&call, cuStreamSynchronize(stream));
}

EXPORT int cudaDeviceSynchronize(void) {
  struct fake_call call;
  fake_cuda_enter(&call, kFakeRuntime, 165, "cudaDeviceSynchronize", NULL);
  return fake_cuda_exit(&call, cuCtxSynchronize());
}
