/* The walker of Python frames (bpf/python.bpf.h), compiled for the host: it reads memory by a function of
 * the test's instead of the kernel's helper. */
#ifndef DYNPROF_TESTS_UNIT_BPF_WALK_HOST_H
#define DYNPROF_TESTS_UNIT_BPF_WALK_HOST_H

#include "bpf/events.h"

#ifdef __cplusplus
extern "C" {
#endif

/* 0, or -1 where not all of it is readable. */
typedef int (*dp_host_read)(void* context, void* to, __u32 size, __u64 address);

struct dp_host_stack {
  __u32 reason;      /* enum dp_counter: DP_COUNT_SAMPLES where there is a stack */
  __u32 flags;       /* DP_SAMPLE_* */
  __u32 frame_count; /* leaf first */
  __u32 reads;       /* calls of the function */
  struct dp_frame frames[DP_MAX_PYTHON_FRAMES];
};

/* As sample_cpu and walk_more do it, in a thread with this fs base. Not thread-safe. */
void dp_host_walk(const struct dp_process* process, __u64 fsbase, dp_host_read read, void* context,
                  struct dp_host_stack* stack);

#ifdef __cplusplus
}
#endif

#endif
