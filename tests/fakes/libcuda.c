/* A CUDA driver without a GPU. See fake_cuda.h. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cupti/cupti_abi.h"
#include "tests/fakes/fake_cuda.h"

#define EXPORT __attribute__((visibility("default")))
static const uint64_t kLaunchLatencyNs = 2000;

static int initialized;
static _Atomic(uint32_t) correlation_ids;
static _Atomic(uint32_t) stream_ids = 13; /* CUPTI's numbers: 7 is the default stream */
static struct fake_stream default_stream = {7, 0};
static _Atomic(const struct fake_tools*) tools;
static __thread uint32_t current; /* the correlation id of the outermost call, 0: not in one */
static uint64_t fixed_duration;   /* FAKE_GPU_KERNEL_NS */
static uint64_t all_end_ns; /* when all work there is so far has ended; by __atomic builtins */

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- the truth ---- */

struct entry {
  int is_work;
  struct fake_work work;
  uint32_t domain, cbid, tid;
};
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static struct entry* entries;
static size_t entry_count, entry_room;
static _Atomic(int) logging;

static void remember(const struct entry* entry) {
  pthread_mutex_lock(&log_lock);
  if (entry_count == entry_room) {
    entry_room = entry_room ? entry_room * 2 : 4096;
    entries = realloc(entries, entry_room * sizeof *entries);
    if (!entries) abort();
  }
  entries[entry_count++] = *entry;
  pthread_mutex_unlock(&log_lock);
}

static void lock_log(void) { pthread_mutex_lock(&log_lock); }
static void unlock_log(void) { pthread_mutex_unlock(&log_lock); }
__attribute__((constructor)) static void survive_fork(void) {
  pthread_atfork(lock_log, unlock_log, unlock_log);
}

EXPORT void fake_cuda_log(int on) { logging = on; }

EXPORT int fake_cuda_write_log(const char* path) {
  FILE* file = fopen(path, "w");
  if (!file) return -1;
  pthread_mutex_lock(&log_lock);
  for (size_t i = 0; i < entry_count; ++i) {
    const struct entry* e = &entries[i];
    const struct fake_work* w = &e->work;
    if (e->is_work)
      fprintf(file, "work %u %u %u %lu %lu %u %lu %s\n", w->kind, w->correlation, w->stream,
              w->start, w->end, w->graph, w->graph_node, w->name ? w->name : "-");
    else
      fprintf(file, "call %u %u %u %u\n", w->correlation, e->domain, e->cbid, e->tid);
  }
  pthread_mutex_unlock(&log_lock);
  return fclose(file);
}

/* ---- calls ---- */

EXPORT int fake_cuda_set_tools(const struct fake_tools* wanted) {
  if (!initialized) return kFakeNotInitialized;
  tools = wanted;
  return 0;
}

EXPORT void fake_cuda_enter(struct fake_call* call, uint32_t domain, uint32_t cbid,
                            const char* name, const char* symbol) {
  call->domain = domain;
  call->cbid = cbid;
  call->name = name;
  call->symbol = symbol;
  call->data = 0;
  call->outermost = current == 0;
  if (call->outermost) {
    current = ++correlation_ids;
    if (logging) {
      struct entry entry = {.work = {.correlation = current}, .domain = domain, .cbid = cbid};
      entry.tid = (uint32_t)syscall(SYS_gettid);
      remember(&entry);
    }
  }
  call->correlation = current;
  const struct fake_tools* told = tools;
  if (told) told->call(kFakeEnter, call, NULL);
}

EXPORT int fake_cuda_exit(struct fake_call* call, int result) {
  const struct fake_tools* told = tools;
  if (told) told->call(kFakeExit, call, &result);
  if (call->outermost) current = 0;
  return result;
}

/* ---- the GPU ---- */

/* Puts the work at the end of its stream. */
static void run(CUstream stream, struct fake_work* work, uint64_t duration) {
  if (!stream) stream = &default_stream;
  const uint64_t ready = now_ns() + kLaunchLatencyNs;
  uint64_t busy = __atomic_load_n(&stream->busy_until, __ATOMIC_ACQUIRE);
  do {
    work->start = busy > ready ? busy : ready;
    work->end = work->start + duration;
  } while (!__atomic_compare_exchange_n(&stream->busy_until, &busy, work->end, 0, __ATOMIC_ACQ_REL,
                                        __ATOMIC_ACQUIRE));
  uint64_t last = __atomic_load_n(&all_end_ns, __ATOMIC_RELAXED);
  while (last < work->end && !__atomic_compare_exchange_n(&all_end_ns, &last, work->end, 0,
                                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  work->stream = stream->id;
  work->correlation = current;
  const struct fake_tools* told = tools;
  if (told) told->work(work);
  if (logging) {
    struct entry entry = {.is_work = 1, .work = *work};
    remember(&entry);
  }
}

static void run_kernel(CUstream stream, CUfunction f, const unsigned grid[3],
                       const unsigned block[3], unsigned shared, CUgraphExec graph, uint64_t node) {
  struct fake_work work = {.kind = kCuptiKindConcurrentKernel, .name = f->name, .shared = shared};
  for (int i = 0; i < 3; ++i) {
    work.grid[i] = (int32_t)grid[i];
    work.block[i] = (int32_t)block[i];
  }
  work.graph = graph ? graph->id : 0;
  work.graph_node = graph ? ((uint64_t)graph->id << 32) + node : 0;
  run(stream, &work, fixed_duration ? fixed_duration : f->duration_ns);
}

static void sleep_until(uint64_t time_ns) {
  for (uint64_t now; (now = now_ns()) < time_ns;) {
    struct timespec pause = {0, (long)(time_ns - now > 1000000 ? 1000000 : time_ns - now)};
    nanosleep(&pause, NULL);
  }
}

EXPORT void fake_cuda_finish(void) { sleep_until(__atomic_load_n(&all_end_ns, __ATOMIC_RELAXED)); }

static void wait_for(CUstream stream, uint32_t sync_type) {
  if (!stream) stream = &default_stream;
  const uint64_t began = now_ns();
  sleep_until(__atomic_load_n(&stream->busy_until, __ATOMIC_ACQUIRE));
  const struct fake_tools* told = tools;
  struct fake_work work = {.kind = kCuptiKindSynchronization, .correlation = current};
  work.start = began;
  work.end = now_ns();
  work.stream = stream->id;
  work.sync_type = sync_type;
  if (told) told->work(&work);
  if (logging) {
    struct entry entry = {.is_work = 1, .work = work};
    remember(&entry);
  }
}

/* ---- the API ---- */

EXPORT int cuInit(unsigned flags) {
  (void)flags;
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&lock);
  const int first = !initialized;
  initialized = 1;
  pthread_mutex_unlock(&lock);
  if (!first) return 0;
  const char* duration = getenv("FAKE_GPU_KERNEL_NS");
  fixed_duration = duration ? strtoull(duration, NULL, 10) : 0;
  const char* path = getenv("CUDA_INJECTION64_PATH");
  if (!path || !strcmp(path, "none")) return 0;
  void* library = dlopen(path, RTLD_NOW);
  int (*initialize)(void) = library ? (int (*)(void))dlsym(library, "InitializeInjection") : NULL;
  if (initialize) initialize();
  return 0;
}

EXPORT int cuDeviceGetCount(int* count) { return *count = 1, 0; }
EXPORT int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return ordinal == 0 ? 0 : 101;
}
EXPORT int cuDeviceGetName(char* name, int bytes, int device) {
  snprintf(name, (size_t)bytes, "Fake GPU");
  return device;
}
EXPORT int cuDeviceTotalMem_v2(size_t* bytes, int device) { return *bytes = 8ul << 30, device; }
EXPORT int cuDeviceGetUuid_v2(void* uuid, int device) {
  for (int i = 0; i < 16; ++i) ((unsigned char*)uuid)[i] = (unsigned char)(i + 1);
  return device;
}
EXPORT int cuDeviceGetAttribute(int* value, int attribute, int device) {
  /* threads/block, shared/block, warp, registers/block, SMs, threads/SM, compute 9.0, … */
  static const int values[][2] = {{1, 1024},    {8, 49152},  {10, 32},    {12, 65536},
                                  {16, 132},    {39, 2048},  {75, 9},     {76, 0},
                                  {81, 233472}, {82, 65536}, {97, 232448}};
  for (size_t i = 0; i < sizeof values / sizeof *values; ++i)
    if (values[i][0] == attribute) return *value = values[i][1], device;
  return 1;
}

EXPORT int cuStreamCreate(CUstream* stream, unsigned flags) {
  (void)flags;
  *stream = calloc(1, sizeof **stream);
  if (!*stream) return 2;
  (*stream)->id = stream_ids++;
  return 0;
}

EXPORT int cuStreamSynchronize(CUstream stream) {
  struct fake_call call;
  fake_cuda_enter(&call, kFakeDriver, 126, "cuStreamSynchronize", NULL);
  wait_for(stream, 3);
  return fake_cuda_exit(&call, 0);
}

EXPORT int cuCtxSynchronize(void) {
  struct fake_call call;
  fake_cuda_enter(&call, kFakeDriver, 17, "cuCtxSynchronize", NULL);
  wait_for(NULL, 4);
  return fake_cuda_exit(&call, 0);
}

EXPORT int cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                          unsigned by, unsigned bz, unsigned shared, CUstream stream, void** params,
                          void** extra) {
  (void)params, (void)extra;
  const unsigned grid[3] = {gx, gy, gz}, block[3] = {bx, by, bz};
  struct fake_call call;
  fake_cuda_enter(&call, kFakeDriver, 307, "cuLaunchKernel", f->name);
  run_kernel(stream, f, grid, block, shared, NULL, 0);
  return fake_cuda_exit(&call, 0);
}

EXPORT int cuLaunchKernelEx(const CUlaunchConfig* c, CUfunction f, void** params, void** extra) {
  (void)params, (void)extra;
  const unsigned grid[3] = {c->gridDimX, c->gridDimY, c->gridDimZ};
  const unsigned block[3] = {c->blockDimX, c->blockDimY, c->blockDimZ};
  struct fake_call call;
  fake_cuda_enter(&call, kFakeDriver, 652, "cuLaunchKernelEx", f->name);
  run_kernel(c->hStream, f, grid, block, c->sharedMemBytes, NULL, 0);
  return fake_cuda_exit(&call, 0);
}

EXPORT int cuGraphLaunch(CUgraphExec graph, CUstream stream) {
  static const unsigned one[3] = {1, 1, 1};
  struct fake_call call;
  fake_cuda_enter(&call, kFakeDriver, 514, "cuGraphLaunch", NULL);
  for (uint32_t i = 0; i < graph->kernels; ++i)
    run_kernel(stream, graph->function, one, one, 0, graph, i + 1);
  return fake_cuda_exit(&call, 0);
}

static int copy(uint32_t cbid, const char* name, uint32_t kind, uint8_t copy_kind, uint8_t from,
                uint8_t to, size_t bytes, CUstream stream) {
  struct fake_call call;
  struct fake_work work = {.kind = kind, .copy_kind = copy_kind, .bytes = bytes};
  work.source_kind = from;
  work.destination_kind = to;
  fake_cuda_enter(&call, kFakeDriver, cbid, name, NULL);
  run(stream, &work, 1000 + bytes / 16);
  return fake_cuda_exit(&call, 0);
}

enum { kPageable = 1, kDevice = 3 };

EXPORT int cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t bytes, CUstream stream) {
  (void)to, (void)from;
  return copy(277, "cuMemcpyHtoDAsync_v2", kCuptiKindMemcpy, 1, kPageable, kDevice, bytes, stream);
}
EXPORT int cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t bytes, CUstream stream) {
  (void)to, (void)from;
  return copy(279, "cuMemcpyDtoHAsync_v2", kCuptiKindMemcpy, 2, kDevice, kPageable, bytes, stream);
}
EXPORT int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, CUstream stream) {
  (void)to, (void)from;
  return copy(281, "cuMemcpyDtoDAsync_v2", kCuptiKindMemcpy, 8, kDevice, kDevice, bytes, stream);
}
EXPORT int cuMemcpyPeerAsync(uint64_t to, void* to_context, uint64_t from, void* from_context,
                             size_t bytes, CUstream stream) {
  (void)to, (void)from, (void)to_context, (void)from_context;
  return copy(319, "cuMemcpyPeerAsync", kCuptiKindMemcpyPeer, 10, kDevice, kDevice, bytes, stream);
}
EXPORT int cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes, CUstream stream) {
  (void)to, (void)value;
  return copy(216, "cuMemsetD8Async", kCuptiKindMemset, 0, 0, kDevice, bytes, stream);
}
