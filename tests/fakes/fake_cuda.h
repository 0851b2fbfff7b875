/* What the three fakes and their targets share: a CUDA driver, a runtime and a CUPTI without a GPU.
 * The driver keeps a fake GPU: streams that run one thing after the other, for durations that are
 * known beforehand, on CLOCK_MONOTONIC. The names and shapes of cu…, cuda… and cupti… functions are
 * NVIDIA's; everything else begins with fake_. */
#ifndef DYNPROF_TESTS_FAKE_CUDA_H
#define DYNPROF_TESTS_FAKE_CUDA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { kFakeNotInitialized = 3, kFakeDriver = 1, kFakeRuntime = 2, kFakeEnter = 0, kFakeExit = 1 };

typedef struct fake_stream {
  uint32_t id;
  uint64_t busy_until; /* by __atomic builtins */
}* CUstream;
/* The name is where driver 580 has it. */
typedef struct fake_function {
  const void* module;
  const char* name;
  uint64_t duration_ns;
}* CUfunction;
typedef struct fake_graph {
  uint32_t id, kernels;
  CUfunction function;
}* CUgraphExec;
typedef struct {
  unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
  CUstream hStream;
  void* attrs;
  unsigned numAttrs;
} CUlaunchConfig;
typedef struct {
  unsigned x, y, z;
} dim3_c;

/* ---- libcuda.so.1 ---- */
int cuInit(unsigned flags); /* loads CUDA_INJECTION64_PATH, as the driver does */
int cuDeviceGetCount(int* count);
int cuDeviceGet(int* device, int ordinal);
int cuDeviceGetName(char* name, int bytes, int device);
int cuDeviceTotalMem_v2(size_t* bytes, int device);
int cuDeviceGetUuid_v2(void* uuid, int device);
int cuDeviceGetAttribute(int* value, int attribute, int device);
int cuStreamCreate(CUstream* stream, unsigned flags);
int cuStreamSynchronize(CUstream stream);
int cuCtxSynchronize(void);
int cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared, CUstream stream, void** params, void** extra);
int cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** params, void** extra);
int cuGraphLaunch(CUgraphExec graph, CUstream stream);
int cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t bytes, CUstream stream);
int cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t bytes, CUstream stream);
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, CUstream stream);
int cuMemcpyPeerAsync(uint64_t to, void* to_context, uint64_t from, void* from_context,
                      size_t bytes, CUstream stream);
int cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes, CUstream stream);

/* ---- libcudart.so.13: each call ends in a driver call with the same correlation id ---- */
int cudaLaunchKernel(const void* f, dim3_c grid, dim3_c block, void** params, size_t shared,
                     CUstream stream);
int cudaGraphLaunch(CUgraphExec graph, CUstream stream);
int cudaMemcpyAsync(void* to, const void* from, size_t bytes, int kind, CUstream stream);
int cudaMemsetAsync(void* to, int value, size_t bytes, CUstream stream);
int cudaStreamSynchronize(CUstream stream);
int cudaDeviceSynchronize(void);
/* What f stands for, of 8 at most; any other is its own CUfunction. */
void fake_cuda_register(const void* f, CUfunction function);

/* ---- between the fakes ---- */

/* Something the fake GPU does; times are CLOCK_MONOTONIC. */
struct fake_work {
  uint32_t kind; /* of CUPTI's activity record */
  uint32_t correlation;
  uint64_t start, end;
  uint32_t stream;
  uint32_t graph;
  uint64_t graph_node;
  const char* name;
  int32_t grid[3], block[3];
  uint32_t shared;
  uint64_t bytes;
  uint8_t copy_kind, source_kind, destination_kind;
  uint32_t sync_type;
};

/* A CUDA call in flight. */
struct fake_call {
  uint32_t domain, cbid, correlation;
  const char* name;
  const char* symbol;
  int outermost;
  uint64_t data; /* CUPTI's correlationData */
};
void fake_cuda_enter(struct fake_call* call, uint32_t domain, uint32_t cbid, const char* name,
                     const char* symbol);
int fake_cuda_exit(struct fake_call* call, int result); /* returns result */

/* What the fake CUPTI wants to hear; NULL: nothing. */
struct fake_tools {
  void (*call)(int site, struct fake_call* call, int* result);
  void (*work)(const struct fake_work* work);
};
int fake_cuda_set_tools(
    const struct fake_tools* tools); /* CUDA_ERROR_NOT_INITIALIZED before cuInit */

/* The truth, for tests: while on, every outermost call and all work is remembered.
 *   call CORRELATION DOMAIN CBID TID
 *   work KIND CORRELATION STREAM START END GRAPH NODE NAME */
void fake_cuda_log(int on);
int fake_cuda_write_log(const char* path);

/* Waits until the work that there is so far has ended, without a call that tools see. */
void fake_cuda_finish(void);

#ifdef __cplusplus
}
#endif
#endif
