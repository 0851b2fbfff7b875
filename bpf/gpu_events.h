/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What bpf/gpu.bpf.c sends, through a ring buffer of its own. The records and the status are the
 * library's (cupti/wire.h), copied as they were found: user space checks them. */
#ifndef DYNPROF_BPF_GPU_EVENTS_H
#define DYNPROF_BPF_GPU_EVENTS_H

#include "bpf/events.h"
#include "cupti/wire.h"

/* Behind those of enum dp_event_kind, with room between. */
enum dp_gpu_event_kind {
  /* struct dp_sample with frames and, where torch's thread-locals are known, a dp_torch_state without
   * phases, then addresses (see below). `gpu_call` is call << 32 | correlation, and the time is when the library saw
   * the call begin. */
  DP_EVENT_GPU_LAUNCH = 32,
  DP_EVENT_GPU_BATCH = 33,  /* struct dp_gpu_bytes */
  DP_EVENT_GPU_NAME = 34,   /* struct dp_gpu_bytes */
  DP_EVENT_GPU_STATUS = 35, /* struct dp_gpu_status */
  DP_EVENT_GPU_STUB = 36,   /* struct dp_gpu_stub */
};

/* In the flags of a launch. NESTED: as DYNPROF_GPU_CALL_NESTED. BARE: seen by a probe on CUDA itself,
 * without the library: no correlation id, and no record of its execution. */
#define DP_SAMPLE_GPU_NESTED 0x1000u
#define DP_SAMPLE_GPU_BARE 0x2000u

/* In the flags of a launch: one native address follows. For a call of the runtime, the function in the program that
 * stands for the kernel; for a call of the driver, where that returns to. With BARE the lower half of `gpu_call` is the
 * lower half of the stack pointer. */
#define DP_SAMPLE_GPU_ADDRESS 0x4000u

/* In the flags of a launch, of a call of the driver: behind that address follows the handle of the kernel (CUfunction). */
#define DP_SAMPLE_GPU_HANDLE 0x0800u

/* In the flags of a launch: behind those follows the number of its stack. With frames, the number stands for
 * them from here on; without, they are those that came with the number before. */
#define DP_SAMPLE_GPU_STACK_NUMBER 0x8000u
#define DP_LAUNCH_STACK_NUMBER(memo, site, version) \
  ((__u64)(memo) << 48 | (__u64)(site) << 32 | (__u32)(version))

/* In the cookie of a probe on CUDA, besides the call: which argument is such a function, or that the address which the
 * call returns to is wanted. */
#define DP_GPU_COOKIE_ARGUMENT(n) ((__u64)(n) << 32)
#define DP_GPU_COOKIE_CALLER DP_GPU_COOKIE_ARGUMENT(3)
/* Besides CALLER: the second argument is the kernel's handle, not the first. */
#define DP_GPU_COOKIE_SECOND ((__u64)1 << 34)

/* A thread calls CUDA's runtime to launch the kernel that `function` stands for; the call into the driver
 * that does it comes next, from deeper in the stack. */
struct dp_gpu_stub {
  struct dp_event_header header;
  __u64 function;
  __u64 sp;
};
DP_ASSERT_SIZE(dp_gpu_stub, 40);

/* Followed by `bytes` bytes: a name with this id, or whole records. The event may be longer. */
struct dp_gpu_bytes {
  struct dp_event_header header;
  __u32 id;
  __u32 bytes;
};
DP_ASSERT_SIZE(dp_gpu_bytes, 32);

struct dp_gpu_status {
  struct dp_event_header header;
  struct dynprof_gpu_status status;
};
DP_ASSERT_SIZE(dp_gpu_status, 152);

#endif
