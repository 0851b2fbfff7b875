/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Hardware watchpoints on two instructions of a Python function (the interpreter reads them to execute
 * them), so that every user function Dynamo traces is seen. Armed only while it does
 * (user/torch/inline_watch.h). The debug exception runs this in the thread itself, after the
 * access. */
#define DP_NO_DIRECT_MAP /* it runs with interrupts on */

#include <linux/bpf.h>
#include <linux/bpf_perf_event.h>
#include <stdbool.h>

#include "bpf/kernel_types.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "bpf/torch_state.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* The instruction executed just before may be at most this far below the one watched. */
#define DP_INLINE_STEP_BYTES 16

/* Is the thread about to execute the instruction at `target` of torch's function? Others read or
 * write these bytes too: the interpreter itself when it specializes an instruction. */
static __always_inline bool executes(struct walk* walk, __u64 target, __u16 unit) {
  const struct dp_python_layout* layout = &walk->process.python;
  const __u8* bytes = walk->frame_bytes;
  if (find_top_frame(walk) != DP_COUNT_SAMPLES) return false;
  if (!fetch_frame(walk, walk->frame + layout->frame_base)) return false;
  __u64 code = field_u64(bytes, layout->frame_code) & ~(__u64)layout->code_tag_mask;
  if (code != walk->process.torch.inline_code) return false;
  __u64 last = field_u64(bytes, layout->frame_instr);
  if (layout->instr_is_index) { /* 3.10 stores it before or after the read, as it was compiled */
    __u32 index = (__u32)last;
    return index <= unit && unit - index <= DP_INLINE_STEP_BYTES / 2;
  }
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

static __always_inline void inline_edge(struct bpf_perf_event_data* ctx, bool begin) {
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
  const struct dp_torch_layout* torch = &process->torch;
  if (begin ? !executes(walk, torch->inline_begin, torch->inline_begin_unit)
            : !executes(walk, torch->inline_end, torch->inline_end_unit))
    return;
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
  event->ip = PT_REGS_IP(&ctx->regs);
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
int inline_begun(struct bpf_perf_event_data* ctx) {
  inline_edge(ctx, true);
  return 0;
}

SEC("perf_event")
int inline_ended(struct bpf_perf_event_data* ctx) {
  inline_edge(ctx, false);
  return 0;
}
