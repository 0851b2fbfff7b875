/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* On-CPU samples. Attached to one perf event per CPU (cpu-clock, or hardware cycles), it takes the
 * Python stack of the interrupted thread when its process is followed, and sends one variable-length
 * event. Four programs in a chain of tail calls: sample_cpu finds the thread's top frame, walk_more
 * walks DP_FRAMES_PER_PROGRAM frames and calls itself, read_markers reads torch's locals and
 * thread-locals, unwind_native the native stack. On this path: lock-free look-ups, per-CPU memory and
 * the ring buffer only. */
#include <linux/bpf.h>
#include <linux/bpf_perf_event.h>
#include <stdbool.h>

#include "bpf/kernel_types.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "bpf/sample_parts.bpf.h"
#include "bpf/torch_state.bpf.h"
#include "bpf/unwind.bpf.h"
#include "bpf/wake.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Wake user space at once when this much waits in the ring buffer; set before load. */
const volatile __u64 wakeup_bytes = 1 << 20;

int walk_more(struct bpf_perf_event_data* ctx);
int read_markers(struct bpf_perf_event_data* ctx);
int unwind_native(struct bpf_perf_event_data* ctx);

struct {
  __uint(type, BPF_MAP_TYPE_PROG_ARRAY);
  __uint(max_entries, 3);
  __uint(key_size, sizeof(__u32));
  __array(values, int(void*));
} tails SEC(".maps") = {
    .values = {[TAIL_WALK] = (void*)&walk_more,
               [TAIL_MARKERS] = (void*)&read_markers,
               [TAIL_NATIVE] = (void*)&unwind_native},
};

/* Sends header, frames, markers, torch's state and addresses as one event. The consumer polls on a
 * timer and is woken only when the buffer fills: a wake-up costs the interrupted thread more than the
 * sample does. */
static __always_inline void submit(struct walk* walk) {
  __u32 size = sample_bytes(walk);
  walk->sample.header.size = size;
  __u64 flags = wake_above(&events, wakeup_bytes);
  /* For the verifier: the compiler must not bound another copy of it. */
  asm volatile("" : "+r"(size));
  if (size > DP_MAX_SAMPLE_BYTES) return;
  if (bpf_ringbuf_output(&events, &walk->sample, size, flags)) count(DP_COUNT_RING_FULL);
}

/* The Python half is done: continues with the native half where that is wanted, else sends the sample. */
static __always_inline void finish(struct bpf_perf_event_data* ctx, struct walk* walk) {
  if (walk->process.native_space) {
    bpf_tail_call(ctx, &tails, TAIL_NATIVE);
    count(DP_COUNT_TAIL_CALL_FAILED);
  }
  submit(walk);
}

/* Walks on; ends in a tail call or by sending the sample. */
static __always_inline void walk_and_submit(struct bpf_perf_event_data* ctx, struct walk* walk) {
  bool more = true;
  for (int i = 0; i < DP_FRAMES_PER_PROGRAM && more; i++) more = walk_frame(walk);
  if (more && walk->frame) {
    walk->programs++;
    /* The chain may hold 33 tail calls: DP_WALK_PROGRAMS of these, and the markers. */
    if (walk->programs < DP_WALK_PROGRAMS) bpf_tail_call(ctx, &tails, TAIL_WALK);
    walk->sample.flags |= DP_SAMPLE_TRUNCATED;
    count(walk->programs < DP_WALK_PROGRAMS ? DP_COUNT_TAIL_CALL_FAILED : DP_COUNT_TRUNCATED);
  }
  identify_frames(walk);
  __u32 tid = walk->sample.header.tid;
  if (walk->marker_notes || bpf_map_lookup_elem(&torch_threads, &tid)) {
    bpf_tail_call(ctx, &tails, TAIL_MARKERS);
    walk->sample.flags |= DP_SAMPLE_MARKERS_CUT;
    count(DP_COUNT_TAIL_CALL_FAILED);
  }
  finish(ctx, walk);
}

SEC("perf_event")
int sample_cpu(struct bpf_perf_event_data* ctx) {
  __u64 pid_tgid = current_ids();
  __u32 pid = pid_tgid >> 32;
  struct dp_process* process = bpf_map_lookup_elem(&processes, &pid);
  if (!process) return 0;
  count(DP_COUNT_SAMPLES);
  struct walk* walk = current_walk();
  if (!walk) {
    count(DP_COUNT_NO_SCRATCH);
    return 0;
  }
  begin_walk(walk, process, DP_EVENT_SAMPLE, pid_tgid, bpf_ktime_get_ns());
  walk->sample.ip = PT_REGS_IP(&ctx->regs);
  if (walk->sample.ip >> 63) walk->sample.flags |= DP_SAMPLE_KERNEL;
  walk->sample.reason = find_top_frame(walk);
  if (walk->sample.reason != DP_COUNT_SAMPLES) {
    count(walk->sample.reason);
    finish(ctx, walk);
    return 0;
  }
  bpf_tail_call(ctx, &tails, TAIL_WALK);
  walk->sample.reason = DP_COUNT_TAIL_CALL_FAILED;
  count(DP_COUNT_TAIL_CALL_FAILED);
  submit(walk);
  return 0;
}

SEC("perf_event")
int walk_more(struct bpf_perf_event_data* ctx) {
  struct walk* walk = current_walk();
  if (walk) walk_and_submit(ctx, walk);
  return 0;
}

SEC("perf_event")
int read_markers(struct bpf_perf_event_data* ctx) {
  struct walk* walk = current_walk();
  if (!walk) return 0;
  read_markers_and_torch(walk);
  finish(ctx, walk);
  return 0;
}

SEC("perf_event")
int unwind_native(struct bpf_perf_event_data* ctx) {
  struct walk* walk = current_walk();
  if (!walk) return 0;
  if (begin_unwinding(ctx, walk))
    for (int i = 0; i < DP_MAX_NATIVE_FRAMES && unwind_frame(); i++) {
    }
  if (walk->sample.native_end != DP_COUNT_SAMPLES) count(walk->sample.native_end);
  append_kernel_frames(ctx, walk);
  submit(walk);
  return 0;
}
