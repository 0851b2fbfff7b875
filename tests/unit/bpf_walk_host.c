/* Stands in for <bpf/bpf_helpers.h> and <bpf/bpf_core_read.h>: see bpf_walk_host.h. */
#include "tests/unit/bpf_walk_host.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#undef __always_inline
#undef __noinline
#define __always_inline inline __attribute__((always_inline))
#define __noinline static __attribute__((noinline, unused))
#define SEC(name)
#define __uint(name, value) int(*name)[value]
#define __type(name, value) __typeof__(value)* name
#define BPF_MAP_TYPE_ARRAY 2
#define BPF_MAP_TYPE_HASH 1
#define BPF_MAP_TYPE_PERCPU_ARRAY 6
#define BPF_MAP_TYPE_RINGBUF 27

#define HOST_READ_1(from, field) ((from)->field)
#define HOST_READ_2(from, by, field) ((from)->by->field)
#define HOST_READ_OF(one, two, chosen, ...) chosen
#define BPF_CORE_READ(from, ...) \
  HOST_READ_OF(__VA_ARGS__, HOST_READ_2, HOST_READ_1, )(from, __VA_ARGS__)
#define bpf_core_field_offset(type, field) offsetof(type, field)
#define bpf_core_type_size(type) sizeof(type)

#include "bpf/kernel_types.h"

static struct task_struct host_task;
static dp_host_read host_read;
static void* host_context;
static __u32 host_reads;

static void* host_lookup(const void* map, const void* key);
#define bpf_map_lookup_elem(map, key) host_lookup(map, key)

static inline long bpf_probe_read_user(void* to, __u32 size, const void* from) {
  host_reads++;
  return host_read(host_context, to, size, (__u64)from);
}
static inline __u64 bpf_get_current_task(void) { return (__u64)&host_task; }
static inline struct task_struct* bpf_get_current_task_btf(void) { return &host_task; }
static inline __u32 bpf_get_smp_processor_id(void) { return 0; }
static inline __u64 bpf_get_current_pid_tgid(void) { return 1ULL << 32 | 1; }

#define DP_NO_DIRECT_MAP /* memory is read by the helper alone */
#include "bpf/python.bpf.h"

static __u64 host_counters[DP_COUNTER_COUNT];
static __u64 host_addresses[DP_MAX_PYTHON_FRAMES];
static struct code_cache host_cache;

static void* host_lookup(const void* map, const void* key) {
  const __u32 index = *(const __u32*)key;
  if (map == &counters) return index < DP_COUNTER_COUNT ? &host_counters[index] : NULL;
  if (map == &frame_addresses) return index < DP_MAX_PYTHON_FRAMES ? &host_addresses[index] : NULL;
  if (map == &code_caches) return &host_cache;
  return NULL; /* no code object is known, no process is looked up */
}

void dp_host_walk(const struct dp_process* process, __u64 fsbase, dp_host_read read, void* context,
                  struct dp_host_stack* stack) {
  static struct walk walk;
  host_task.thread.fsbase = fsbase;
  host_read = read;
  host_context = context;
  host_reads = 0;
  memset(&host_cache, 0, sizeof host_cache);
  begin_walk(&walk, process, DP_EVENT_SAMPLE, current_ids(), 0);
  walk.sample.reason = find_top_frame(&walk);
  if (walk.sample.reason == DP_COUNT_SAMPLES) {
    bool more = true;
    for (int program = 0; program < DP_WALK_PROGRAMS && more; program++)
      for (int i = 0; i < DP_FRAMES_PER_PROGRAM && more; i++) more = walk_frame(&walk);
    if (more && walk.frame) walk.sample.flags |= DP_SAMPLE_TRUNCATED;
    identify_frames(&walk);
  }
  stack->reason = walk.sample.reason;
  stack->flags = walk.sample.flags;
  stack->frame_count = walk.sample.frame_count;
  stack->reads = host_reads;
  memcpy(stack->frames, walk.frames, sizeof stack->frames);
}
