/* The BPF programs' reading of a thread (bpf/sample_parts.bpf.h), compiled for the host: Python frames, torch's
 * locals and thread-locals, the native stack. It reads memory by a function of the test's instead of the kernel's
 * helper, and finds in its maps what the test puts there. Not thread-safe. */
#ifndef DYNPROF_TESTS_UNIT_BPF_WALK_HOST_H
#define DYNPROF_TESTS_UNIT_BPF_WALK_HOST_H

#include "bpf/events.h"
#include "bpf/unwind_format.h"

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

/* Python frames alone, as sample_cpu and walk_more find them in a thread with this fs base. */
void dp_host_walk(const struct dp_process* process, __u64 fsbase, dp_host_read read, void* context,
                  struct dp_host_stack* stack);

/* A BPF array inside of a map of maps; `elements` null: the slot is empty. */
struct dp_host_array {
  void* elements;
  __u32 count;
  __u32 size; /* of one element */
};

struct dp_host_known_code {
  struct dp_marker_key key;
  struct dp_marker_code code;
};

/* A thread that is interrupted: its process and thread are number DP_HOST_ID. */
#define DP_HOST_ID 1
struct dp_host_thread {
  const struct dp_process* process;
  __u64 fsbase;
  dp_host_read read;
  void* context;
  __u64 ip, sp, bp, r10, r13, rbx;
  int in_kernel; /* it entered the kernel with these registers */
  /* Maps. */
  struct dp_host_known_code* known; /* known_codes */
  __u32 known_count;
  struct dp_torch_thread* torch; /* torch_threads; null: not there */
  struct dp_host_array* spaces;  /* native_spaces, by slot */
  __u32 space_count;
  struct dp_host_array* tables; /* unwind_tables, by slot */
  __u32 table_count;
  /* Called before each look-up in a space; may be null. */
  void (*before_look_up)(void* context);
  /* A call whose return another program probes: where its return address was, and what it was. 0: none. */
  __u64 probed_slot, probed_return;
};

#define DP_HOST_EVENT_BYTES 65536

/* The event that the sampler would send for the thread, at `event`; returns its bytes. */
__u32 dp_host_sample(const struct dp_host_thread* thread, void* event);
/* How often the sample before called `read`. */
__u32 dp_host_reads(void);

#ifdef __cplusplus
}
#endif

#endif
