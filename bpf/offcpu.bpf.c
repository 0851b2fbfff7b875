/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Time off the CPU: why a thread of a followed process does not run, for how long, and where it was
 * when it began to wait.
 *
 * It runs at every switch of every CPU, with the run queue locked, so it must be cheap: other
 * processes cost one look-up each, and the clock is read only for followed ones. A preempted thread
 * is only timed. A wait's stack is walked only when what led to it (wait_key.bpf.h) is new on this
 * CPU, and within a token bucket. At the thread's return the wait becomes an event when it was long,
 * else it is added to the sum of those before it. Nothing is inserted into a hash. */
#include <linux/bpf.h>
#include <linux/bpf_perf_event.h>
#include <stdbool.h>

#include "bpf/kernel_types.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "bpf/sample_parts.bpf.h"
#include "bpf/thread_times.bpf.h"
#include "bpf/torch_state.bpf.h"
#include "bpf/unwind.bpf.h"
#include "bpf/wait_memo.bpf.h"
#include "bpf/wake.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

const volatile __u64 wait_wakeup_bytes = 1 << 20;

#define TASK_DEAD_STATE 0x80

int walk_wait(struct bpf_raw_tracepoint_args* ctx);
int read_wait_markers(struct bpf_raw_tracepoint_args* ctx);
int unwind_wait(struct bpf_raw_tracepoint_args* ctx);

struct {
  __uint(type, BPF_MAP_TYPE_PROG_ARRAY);
  __uint(max_entries, 3);
  __uint(key_size, sizeof(__u32));
  __array(values, int(void*));
} wait_tails SEC(".maps") = {
    .values = {[TAIL_WALK] = (void*)&walk_wait,
               [TAIL_MARKERS] = (void*)&read_wait_markers,
               [TAIL_NATIVE] = (void*)&unwind_wait},
};

/* Attached where the scheduler does not keep delays. */
SEC("raw_tp/sched_wakeup")
int thread_woken(struct bpf_raw_tracepoint_args* ctx) {
  struct task_struct* task = (struct task_struct*)ctx->args[0];
  __u32 tid = tid_of(task);
  struct dp_thread_time* place = place_of(tid);
  if (tid && place && place->tid == tid && place->pid == pid_of(task) && place->out_ns &&
      !place->wake_ns)
    place->wake_ns = bpf_ktime_get_ns();
  return 0;
}

/* A thread is gone: its time on the CPU is known. */
static __always_inline void thread_gone(struct dp_thread_time* place, __u64 now) {
  if (place->in_ns && !place->out_ns) place->cpu_ns += now - place->in_ns;
  send_sum(place);
  send_mark(place, now);
}

/* In a container a thread has lost its ids by the time of its last switch: it counts until it begins to
 * end. Attached there only. */
SEC("raw_tp/sched_process_exit")
int thread_ends(struct bpf_raw_tracepoint_args* ctx __attribute__((unused))) {
  __u64 now = 0;
  struct dp_thread_time* place = followed_place(current_ids(), bpf_get_current_task_btf(), &now);
  if (!place) return 0;
  thread_gone(place, now);
  place->flags |= DP_THREAD_ENDED;
  return 0;
}

/* Notes where the wait begins. True: its stack is to be walked. */
static __always_inline bool note_wait(struct dp_thread_time* place, struct task_struct* task,
                                      __u64 now) {
  const struct pt_regs* regs = (const struct pt_regs*)bpf_task_pt_regs(task);
  __u64 call = regs->orig_rax;
  __u32 fd = (__u32)regs->rdi, pid = place->pid;
  place->call = call < 4096 ? (__s32)call : -1;
  __u64 key = mix(mix(regs->rsp, regs->rip), (__u64)place->tid << 32 | (__u32)place->call);
  if (dp_call_names_file(place->call)) key = mix(key, fd);
  __u32 slot = place->tid & (DP_THREAD_TIMES - 1);
  struct quick_places* places = bpf_map_lookup_elem(&quick_places, &slot);
  if (!places) return false;
  __u32 way = quick_way(places, key);
  bool same = !(way & QUICK_NEW);
  struct quick_place* quick = &places->ways[way & (QUICK_WAYS - 1)];
  struct walk* walk = current_walk();
  forget_pages();
  if (!walk || quickly_known(places, quick, place, same, walk, now)) return false;
  quick->stack = 0;
  struct dp_process* process = bpf_map_lookup_elem(&processes, &pid);
  if (!process) return false;
  set_fields(&places->fields, &process->python);
  __u64 frame = peek_top_frame(walk, process, task, &places->thread_state, &quick->top.kept_at);
  key = mix_frames(walk, &places->fields, frame, key, &quick->top.hash);
  if (process->flags & DP_PROCESS_TORCH) key = mix_torch(place->tid, key);
  if (!remember(place, quick, key, fd, now)) return false;
  begin_walk(walk, process, DP_EVENT_WAIT_STACK, (__u64)place->pid << 32 | place->tid, now);
  walk->sample.flags = DP_SAMPLE_KERNEL;
  walk->sample.stack = place->stack;
  walk->sample.reason = find_top_frame(walk);
  return true;
}

SEC("raw_tp/sched_switch")
int thread_switched(struct bpf_raw_tracepoint_args* ctx) {
  bool preempted = ctx->args[0] & 1;
  __u32 state = (__u32)ctx->args[3]; /* Linux 5.19 and later */
  struct task_struct* task = bpf_get_current_task_btf();
  __u64 now = 0;
  const struct task_struct* next = next_task(ctx);
  struct dp_thread_time* place = followed_place(next_ids(ctx, next), next, &now);
  if (place) switch_in(place, next, (struct task_struct*)ctx->args[2], now);

  place = followed_place(pid_level ? current_ids() : ids_of(task), task, &now);
  if (!place) return 0;
  if (!preempted && (state & TASK_DEAD_STATE)) {
    thread_gone(place, now);
    place->tid = 0;
    return 0;
  }
  switch_out(place, task, preempted, state, now);
  if (place->flags || !note_wait(place, task, now)) return 0;
  struct walk* walk = current_walk();
  if (!walk) return 0;
  if (walk->sample.reason == DP_COUNT_SAMPLES)
    bpf_tail_call(ctx, &wait_tails, TAIL_WALK);
  else
    bpf_tail_call(ctx, &wait_tails, TAIL_NATIVE);
  count(DP_COUNT_TAIL_CALL_FAILED);
  return 0;
}

/* ---- its stack -------------------------------------------------------------------------------- */

SEC("raw_tp")
int walk_wait(struct bpf_raw_tracepoint_args* ctx) {
  struct walk* walk = current_walk();
  if (!walk) return 0;
  bool more = true;
  for (int i = 0; i < DP_FRAMES_PER_PROGRAM && more; i++) more = walk_frame(walk);
  if (more && walk->frame) {
    walk->programs++;
    if (walk->programs < DP_WALK_PROGRAMS) bpf_tail_call(ctx, &wait_tails, TAIL_WALK);
    walk->sample.flags |= DP_SAMPLE_TRUNCATED;
    count(walk->programs < DP_WALK_PROGRAMS ? DP_COUNT_TAIL_CALL_FAILED : DP_COUNT_TRUNCATED);
  }
  identify_frames(walk);
  bpf_tail_call(ctx, &wait_tails, TAIL_MARKERS);
  count(DP_COUNT_TAIL_CALL_FAILED);
  return 0;
}

SEC("raw_tp")
int read_wait_markers(struct bpf_raw_tracepoint_args* ctx) {
  struct walk* walk = current_walk();
  if (!walk) return 0;
  read_markers_and_torch(walk);
  bpf_tail_call(ctx, &wait_tails, TAIL_NATIVE);
  count(DP_COUNT_TAIL_CALL_FAILED);
  return 0;
}

static __always_inline void submit_stack(struct walk* walk) {
  __u32 size = sample_bytes(walk);
  walk->sample.header.size = size;
  __u64 flags = wake_above(&events, wait_wakeup_bytes);
  asm volatile("" : "+r"(size)); /* as in sampler.bpf.c */
  if (size > DP_MAX_SAMPLE_BYTES) return;
  if (bpf_ringbuf_output(&events, &walk->sample, size, flags)) count(DP_COUNT_WAIT_RING_FULL);
}

SEC("raw_tp")
int unwind_wait(struct bpf_raw_tracepoint_args* ctx) {
  struct walk* walk = current_walk();
  if (!walk) return 0;
  walk->native.at = addresses_begin(walk);
  if (walk->process.native_space) {
    if (begin_unwinding(0, walk))
      for (int i = 0; i < DP_MAX_NATIVE_FRAMES && unwind_frame(); i++) {
      }
    if (walk->sample.native_end != DP_COUNT_SAMPLES) count(walk->sample.native_end);
    append_kernel_frames(ctx, walk);
  }
  submit_stack(walk);
  return 0;
}
