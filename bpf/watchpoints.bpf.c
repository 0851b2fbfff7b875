/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Hardware watchpoints. One on the length of each compiling thread's list of open phases, so that
 * every phase torch begins and ends is seen, to the microsecond. Two on instructions of a Python
 * function (the interpreter reads them to execute them), so that every user function Dynamo traces
 * is. One on the length of the list of graph breaks. The debug exception runs this in the thread
 * itself, after the access. */
#include <linux/bpf.h>
#include <linux/bpf_perf_event.h>
#include <stdbool.h>

#include "bpf/kernel_types.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "bpf/torch_state.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct phase_scratch {
  struct dp_process process;
  struct dp_phase_event event;
};
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct phase_scratch);
} phase_scratch SEC(".maps");

/* By dp_torch_thread.slot. Not in that, which user space writes while threads compile: what it last saw
 * is older than the last hit. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, DP_MAX_TORCH_THREADS);
  __type(key, __u32);
  __type(value, struct dp_phase_list);
} phase_lists SEC(".maps");

SEC("perf_event")
int phases_changed(struct bpf_perf_event_data* ctx __attribute__((unused))) {
  __u64 pid_tgid = current_ids();
  __u32 pid = pid_tgid >> 32;
  __u32 tid = (__u32)pid_tgid;
  __u32 zero = 0;
  struct dp_process* process = bpf_map_lookup_elem(&processes, &pid);
  struct dp_torch_thread* thread = bpf_map_lookup_elem(&torch_threads, &tid);
  struct phase_scratch* scratch = bpf_map_lookup_elem(&phase_scratch, &zero);
  if (!process || !thread || !scratch || thread->pid != pid) return 0;
  __u32 slot = thread->slot;
  struct dp_phase_list* last = bpf_map_lookup_elem(&phase_lists, &slot);
  if (!last) return 0;
  struct dp_phase_event* event = &scratch->event;
  struct list_head list;
  __builtin_memset(event, 0, sizeof(*event));
  event->header.size = sizeof(*event);
  event->header.kind = DP_EVENT_PHASE;
  event->header.cpu = bpf_get_smp_processor_id();
  event->header.time_ns = bpf_ktime_get_ns();
  event->header.pid = pid;
  event->header.tid = tid;
  read_torch_state(process, thread, &list, &event->torch);
  event->cpu_ns = thread_cpu_ns();
  event->before = last->depth;
  event->depth = (__u32)list.size;
  if (event->torch.status == DP_TORCH_READ && list.items) {
    __u64 item = event->depth > event->before ? list.size - 2 : list.size;
    if (item < DP_MAX_OPEN_PHASES)
      event->name_size = read_phase_name(process, &list, item, event->name, sizeof(event->name));
  }
  last->depth = event->depth;
  last->hit_ns = event->header.time_ns;
  if (bpf_ringbuf_output(&events, event, sizeof(*event), BPF_RB_NO_WAKEUP))
    count(DP_COUNT_RING_FULL);
  return 0;
}

/* The instruction executed just before may be at most this far below the one watched. */
#define DP_INLINE_STEP_BYTES 16

/* Is the thread about to execute the instruction at `target` of torch's function? Others read or
 * write these bytes too: the interpreter itself when it specializes an instruction. */
static __always_inline bool executes(struct walk* walk, __u64 target) {
  const struct dp_python_layout* layout = &walk->process.python;
  const __u8* bytes = walk->frame_bytes;
  if (find_top_frame(walk) != DP_COUNT_SAMPLES) return false;
  if (!fetch_frame(walk, walk->frame + layout->frame_base)) return false;
  __u64 code = field_u64(bytes, layout->frame_code) & ~(__u64)layout->code_tag_mask;
  if (code != walk->process.torch.inline_code) return false;
  __u64 last = field_u64(bytes, layout->frame_instr);
  return last < target && target - last <= DP_INLINE_STEP_BYTES;
}

struct inline_scratch {
  struct walk walk;
  struct dp_inline_event event;
};

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct inline_scratch);
} inline_scratch SEC(".maps");

static __always_inline void read_callers(struct walk* walk, struct dp_inline_event* event) {
  const struct dp_python_layout* layout = &walk->process.python;
  const __u8* bytes = walk->frame_bytes;
  __u64 frame = walk->frame;
  __u32 i;
  for (i = 0; i < DP_MAX_INLINE_CALLERS; i++) {
    if (!frame || !fetch_frame(walk, frame + layout->frame_base)) break;
    __u64 code = field_u64(bytes, layout->frame_code) & ~(__u64)layout->code_tag_mask;
    event->callers[i] = is_shim(walk, code) ? 0 : dp_frame_key(frame, code);
    frame = field_u64(bytes, layout->frame_previous);
  }
  event->caller_count = (__u16)i;
}

static __always_inline void inline_edge(bool begin) {
  __u64 pid_tgid = current_ids();
  __u32 pid = pid_tgid >> 32;
  __u32 zero = 0;
  struct dp_process* process = bpf_map_lookup_elem(&processes, &pid);
  struct inline_scratch* scratch = bpf_map_lookup_elem(&inline_scratch, &zero);
  if (!process || !scratch || !process->torch.inline_code) return;
  struct walk* walk = &scratch->walk;
  struct dp_inline_event* event = &scratch->event;
  walk->process = *process;
  walk->check_caller = 0;
  forget_page(walk);
  walk->frame = 0;
  if (!executes(walk, begin ? process->torch.inline_begin : process->torch.inline_end)) return;
  __u32 size = begin ? sizeof(*event) : __builtin_offsetof(struct dp_inline_event, callers);
  event->header.size = size;
  event->header.kind = DP_EVENT_INLINE;
  event->header.cpu = bpf_get_smp_processor_id();
  event->header.time_ns = bpf_ktime_get_ns();
  event->header.pid = pid;
  event->header.tid = (__u32)pid_tgid;
  event->cpu_ns = thread_cpu_ns();
  event->frame = walk->frame;
  event->begin = begin;
  event->code = 0;
  event->identity = 0;
  event->caller_count = 0;
  if (begin) {
    __u64 type = 0;
    __u64 code = read_local(&walk->process, walk->frame, process->torch.inline_slot, &type);
    if (code && read_identity(walk, code, &event->identity)) event->code = code;
    read_callers(walk, event);
  }
  if (bpf_ringbuf_output(&events, event, size, BPF_RB_NO_WAKEUP)) count(DP_COUNT_RING_FULL);
}

SEC("perf_event")
int inline_begun(struct bpf_perf_event_data* ctx __attribute__((unused))) {
  inline_edge(true);
  return 0;
}

SEC("perf_event")
int inline_ended(struct bpf_perf_event_data* ctx __attribute__((unused))) {
  inline_edge(false);
  return 0;
}

SEC("perf_event")
int breaks_changed(struct bpf_perf_event_data* ctx __attribute__((unused))) {
  __u64 pid_tgid = current_ids();
  __u32 pid = pid_tgid >> 32;
  __u32 tid = (__u32)pid_tgid;
  struct dp_process* process = bpf_map_lookup_elem(&processes, &pid);
  struct dp_torch_thread* thread = bpf_map_lookup_elem(&torch_threads, &tid);
  if (!process || !thread || thread->pid != pid) return 0;
  struct dp_break_event event = {};
  struct list_head list;
  event.header.size = sizeof(event);
  event.header.kind = DP_EVENT_BREAK;
  event.header.cpu = bpf_get_smp_processor_id();
  event.header.time_ns = bpf_ktime_get_ns();
  event.header.pid = pid;
  event.header.tid = tid;
  event.cpu_ns = thread_cpu_ns();
  read_torch_state(process, thread, &list, &event.torch);
  if (bpf_probe_read_user(&list, sizeof(list), (const void*)process->torch.break_list) ||
      list.type != process->torch.list_type)
    return 0;
  event.length = list.size;
  if (bpf_ringbuf_output(&events, &event, sizeof(event), BPF_RB_NO_WAKEUP))
    count(DP_COUNT_RING_FULL);
  return 0;
}
