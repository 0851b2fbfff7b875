/* See bpf_walk_host.h. */
#include "tests/unit/bpf_walk_host.h"

#include <linux/bpf.h>
#include <linux/bpf_perf_event.h>
#include <stdbool.h>
#include <string.h>

#include "tests/unit/bpf_host.h"

static struct return_instance host_return;
static struct uprobe_task host_utask;
static struct task_struct host_task = {.utask = &host_utask};
static struct pt_regs host_saved;
static const struct dp_host_thread* host;
static __u32 host_reads;

static void* host_lookup(const void* map, const void* key);
#define bpf_map_lookup_elem(map, key) host_lookup(map, key)

static inline long bpf_probe_read_user(void* to, __u32 size, const void* from) {
  host_reads++;
  return host->read(host->context, to, size, (__u64)from);
}
static inline long bpf_probe_read_kernel(void* to, __u32 size, const void* from) {
  memcpy(to, from, size);
  return 0;
}
static inline long bpf_task_pt_regs(struct task_struct* task) {
  (void)task;
  return (long)&host_saved;
}
static inline long bpf_get_stack(void* ctx, void* to, __u32 size, __u64 flags) {
  (void)ctx, (void)to, (void)size, (void)flags;
  return 0; /* no frames of the kernel */
}
static inline __u64 bpf_get_current_task(void) { return (__u64)&host_task; }
static inline struct task_struct* bpf_get_current_task_btf(void) { return &host_task; }
static inline __u32 bpf_get_smp_processor_id(void) { return 0; }
static inline __u64 bpf_get_current_pid_tgid(void) { return (__u64)DP_HOST_ID << 32 | DP_HOST_ID; }

#define DP_NO_DIRECT_MAP /* memory is read by the helper alone */
#include "bpf/sample_parts.bpf.h"

static __u64 host_counters[DP_COUNTER_COUNT];
static __u64 host_addresses[DP_MAX_PYTHON_FRAMES];
static struct code_cache host_codes;
static struct rule_cache host_rules;
static struct walk host_walk;

static void* in_slot(struct dp_host_array* arrays, __u32 count, __u32 slot) {
  return slot < count && arrays[slot].elements ? &arrays[slot] : NULL;
}

static bool is_one_of(const void* map, const struct dp_host_array* arrays, __u32 count) {
  return arrays && map >= (const void*)arrays && map < (const void*)(arrays + count);
}

static void* known_code(const void* key) {
  for (__u32 i = 0; i < host->known_count; i++)
    if (!memcmp(&host->known[i].key, key, sizeof(struct dp_marker_key)))
      return &host->known[i].code;
  return NULL;
}

static void* host_lookup(const void* map, const void* key) {
  const __u32 index = *(const __u32*)key;
  const bool space = is_one_of(map, host->spaces, host->space_count);
  if (map == &counters) return index < DP_COUNTER_COUNT ? &host_counters[index] : NULL;
  if (map == &frame_addresses) return index < DP_MAX_PYTHON_FRAMES ? &host_addresses[index] : NULL;
  if (map == &code_caches) return &host_codes;
  if (map == &rule_caches) return &host_rules;
  if (map == &walks) return &host_walk;
  if (map == &known_codes) return known_code(key);
  if (map == &torch_threads) return host->torch;
  if (map == &native_spaces) return in_slot(host->spaces, host->space_count, index);
  if (map == &unwind_tables) return in_slot(host->tables, host->table_count, index);
  if (space || is_one_of(map, host->tables, host->table_count)) {
    const struct dp_host_array* array = map;
    if (space && host->before_look_up) host->before_look_up(host->context);
    return index < array->count ? (char*)array->elements + (size_t)index * array->size : NULL;
  }
  return NULL; /* no process is looked up */
}

/* As sample_cpu and walk_more do it. */
static void walk_python(const struct dp_host_thread* thread, struct walk* walk) {
  host = thread;
  host_reads = 0;
  host_task.thread.fsbase = thread->fsbase;
  memset(&host_codes, 0, sizeof host_codes);
  begin_walk(walk, thread->process, DP_EVENT_SAMPLE, current_ids(), 0);
  walk->sample.reason = find_top_frame(walk);
  if (walk->sample.reason != DP_COUNT_SAMPLES) return;
  bool more = true;
  for (int program = 0; program < DP_WALK_PROGRAMS && more; program++)
    for (int i = 0; i < DP_FRAMES_PER_PROGRAM && more; i++) more = walk_frame(walk);
  if (more && walk->frame) walk->sample.flags |= DP_SAMPLE_TRUNCATED;
  identify_frames(walk);
}

void dp_host_walk(const struct dp_process* process, __u64 fsbase, dp_host_read read, void* context,
                  struct dp_host_stack* stack) {
  const struct dp_host_thread thread = {
      .process = process, .fsbase = fsbase, .read = read, .context = context};
  walk_python(&thread, &host_walk);
  stack->reason = host_walk.sample.reason;
  stack->flags = host_walk.sample.flags;
  stack->frame_count = host_walk.sample.frame_count;
  stack->reads = host_reads;
  memcpy(stack->frames, host_walk.frames, sizeof stack->frames);
}

_Static_assert(DP_MAX_SAMPLE_BYTES <= DP_HOST_EVENT_BYTES, "room for an event");

__u32 dp_host_sample(const struct dp_host_thread* thread, void* event) {
  struct walk* walk = &host_walk;
  struct bpf_perf_event_data data;
  memset(&data, 0, sizeof data);
  memset(&host_saved, 0, sizeof host_saved);
  struct pt_regs* registers = thread->in_kernel ? &host_saved : (struct pt_regs*)&data.regs;
  if (thread->in_kernel) data.regs.rip = ~0UL;
  registers->rip = thread->ip;
  registers->rsp = thread->sp;
  registers->rbp = thread->bp;
  registers->r10 = thread->r10;
  registers->r13 = thread->r13;
  registers->rbx = thread->rbx;
  host_return.stack = thread->probed_slot;
  host_return.orig_ret_vaddr = thread->probed_return;
  host_utask.return_instances = thread->probed_slot ? &host_return : NULL;

  walk_python(thread, walk);
  walk->sample.ip = data.regs.rip;
  if (walk->sample.reason == DP_COUNT_SAMPLES && (walk->marker_notes || thread->torch))
    read_markers_and_torch(walk);
  if (walk->process.native_space && begin_unwinding(&data, walk))
    for (int i = 0; i < DP_MAX_NATIVE_FRAMES && unwind_frame(); i++) {
    }
  walk->sample.header.size = sample_bytes(walk);
  memcpy(event, &walk->sample, walk->sample.header.size);
  return walk->sample.header.size;
}

__u32 dp_host_reads(void) { return host_reads; }
