/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Probes on native functions of torch that are called a few hundred times a compile, or once per run
 * of a compiled region: begin and end to the microsecond, in every wheel from 2.6 on.
 *
 *   c10::monitor::WaitCounterHandle(std::string_view), start, stop    libc10
 *   dynamo_eval_custom_code(tstate, frame, code, const char*, int)    libtorch_python
 *   THPPyInterpreterFrame_New(frame)                                  libtorch_python
 *   torch::autograd::PyNode::apply(variable_list&&)                   libtorch_python
 *
 * A handle's first word points to what all handles of that name share: the counter. Its name is an
 * argument of the constructor only. */
#include <linux/bpf.h>
#include <linux/bpf_perf_event.h>
#include <stdbool.h>

#include "bpf/kernel_types.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "bpf/torch_state.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* A constructor's arguments until it returns, by thread; two threads in one slot lose one name,
 * which the next handle of that name brings again. */
struct constructor_call {
  __u32 tid;
  __u32 name_size;
  __u64 handle;
  char name[DP_PROBE_NAME_BYTES];
};
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, DP_PROBE_SLOTS);
  __type(key, __u32);
  __type(value, struct constructor_call);
} constructor_calls SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct dp_probe_event);
} probe_scratch SEC(".maps");

static __always_inline struct constructor_call* call_slot(__u32 tid) {
  __u32 slot = tid & (DP_PROBE_SLOTS - 1);
  return bpf_map_lookup_elem(&constructor_calls, &slot);
}

/* The event with everything but probe, object and name; null: not a process we follow. */
static __always_inline struct dp_probe_event* begin_event(__u16 probe, __u64 object,
                                                          struct dp_torch_thread** thread) {
  __u64 pid_tgid = current_ids();
  __u32 pid = pid_tgid >> 32;
  __u32 tid = (__u32)pid_tgid;
  __u32 zero = 0;
  struct dp_process* process = bpf_map_lookup_elem(&processes, &pid);
  struct dp_probe_event* event = bpf_map_lookup_elem(&probe_scratch, &zero);
  if (!process || !event) return 0;
  __builtin_memset(event, 0, sizeof(*event));
  event->header.size = sizeof(*event);
  event->header.kind = DP_EVENT_PROBE;
  event->header.cpu = bpf_get_smp_processor_id();
  event->header.time_ns = bpf_ktime_get_ns();
  event->header.pid = pid;
  event->header.tid = tid;
  event->cpu_ns = thread_cpu_ns();
  event->probe = probe;
  event->object = object;
  *thread = bpf_map_lookup_elem(&torch_threads, &tid);
  if (*thread && (*thread)->pid != pid) *thread = 0;
  bool is_run = probe == DP_PROBE_REGION_BEGIN || probe == DP_PROBE_REGION_END ||
                probe == DP_PROBE_NODE_BEGIN || probe == DP_PROBE_NODE_END;
  if (*thread && !is_run) {
    struct list_head list;
    read_torch_state(process, *thread, &list, &event->torch);
    if (probe == DP_PROBE_WAIT_BEGIN && list.size - 1 < DP_MAX_OPEN_PHASES)
      event->name_size =
          (__u16)read_phase_name(process, &list, list.size - 1, event->name, sizeof(event->name));
  }
  return event;
}

static __always_inline void send(struct dp_probe_event* event, __u64 flags) {
  if (bpf_ringbuf_output(&events, event, sizeof(*event), flags)) count(DP_COUNT_RING_FULL);
}

SEC("uprobe")
int counter_made(struct pt_regs* ctx) {
  __u32 tid = (__u32)current_ids();
  struct constructor_call* call = call_slot(tid);
  if (!call) return 0;
  __u64 size = PT_REGS_PARM2(ctx);
  if (size > DP_PROBE_NAME_BYTES) size = DP_PROBE_NAME_BYTES;
  call->tid = 0;
  if (bpf_probe_read_user(call->name, size & 0x7f, (const void*)PT_REGS_PARM3(ctx))) return 0;
  call->handle = PT_REGS_PARM1(ctx);
  call->name_size = (__u32)size;
  call->tid = tid;
  return 0;
}

SEC("uretprobe")
int counter_named(struct pt_regs* ctx __attribute__((unused))) {
  __u32 tid = (__u32)current_ids();
  struct constructor_call* call = call_slot(tid);
  struct dp_torch_thread* thread = 0;
  __u64 counter = 0;
  if (!call || call->tid != tid) return 0;
  call->tid = 0;
  if (!read_user_u64(call->handle, &counter)) return 0;
  struct dp_probe_event* event = begin_event(DP_PROBE_COUNTER_NAME, counter, &thread);
  if (!event) return 0;
  event->name_size = (__u16)call->name_size;
  __builtin_memcpy(event->name, call->name, sizeof(event->name));
  send(event, BPF_RB_NO_WAKEUP);
  return 0;
}

static __always_inline void wait_edge(__u16 probe, __u64 handle) {
  struct dp_torch_thread* thread = 0;
  __u64 counter = 0;
  if (!read_user_u64(handle, &counter)) return;
  struct dp_probe_event* event = begin_event(probe, counter, &thread);
  if (!event) return;
  /* User space wants to watch this thread's phases from as early on as can be. */
  bool watched = thread && thread->phases.entry && !thread->resting;
  send(event, watched ? BPF_RB_NO_WAKEUP : BPF_RB_FORCE_WAKEUP);
}

SEC("uprobe")
int wait_started(struct pt_regs* ctx) {
  wait_edge(DP_PROBE_WAIT_BEGIN,
            PT_REGS_PARM2(ctx)); /* the first argument is where the result goes */
  return 0;
}

SEC("uprobe")
int wait_stopped(struct pt_regs* ctx) {
  wait_edge(DP_PROBE_WAIT_END, PT_REGS_PARM1(ctx));
  return 0;
}

SEC("uprobe")
int region_entered(struct pt_regs* ctx) {
  struct dp_torch_thread* thread = 0;
  struct dp_probe_event* event = begin_event(DP_PROBE_REGION_BEGIN, PT_REGS_PARM3(ctx), &thread);
  if (!event) return 0;
  long size =
      bpf_probe_read_user_str(event->name, sizeof(event->name), (const void*)PT_REGS_PARM4(ctx));
  if (size > 1) event->name_size = (__u16)(size - 1);
  send(event, BPF_RB_NO_WAKEUP);
  return 0;
}

SEC("uretprobe")
int region_left(struct pt_regs* ctx __attribute__((unused))) {
  struct dp_torch_thread* thread = 0;
  struct dp_probe_event* event = begin_event(DP_PROBE_REGION_END, 0, &thread);
  if (event) send(event, BPF_RB_NO_WAKEUP);
  return 0;
}

/* The type of the object a word points to; 0: it points to none. */
static __always_inline __u64 type_at(__u64 word) {
  struct object_head head = {};
  __u64 address = 0;
  return read_user_u64(word, &address) && read_object(address, &head) ? head.type : 0;
}

SEC("uprobe")
int node_entered(struct pt_regs* ctx) {
  __u32 pid = current_ids() >> 32;
  __u64 node = PT_REGS_PARM2(ctx); /* the first argument is where the result goes */
  struct dp_torch_thread* thread = 0;
  struct dp_process* process = bpf_map_lookup_elem(&processes, &pid);
  struct dp_probe_event* event = begin_event(DP_PROBE_NODE_BEGIN, 0, &thread);
  if (!process || !event) return 0;
  __u16 offset = process->torch.node_object;
  if (offset) {
    event->object = type_at(node + offset);
  } else {
    for (__u32 i = 0; i < DP_NODE_WORDS; i++)
      event->types[i] = type_at(node + DP_NODE_FIRST_WORD + 8 * i);
  }
  send(event, BPF_RB_NO_WAKEUP);
  return 0;
}

SEC("uretprobe")
int node_left(struct pt_regs* ctx __attribute__((unused))) {
  struct dp_torch_thread* thread = 0;
  struct dp_probe_event* event = begin_event(DP_PROBE_NODE_END, 0, &thread);
  if (event) send(event, BPF_RB_NO_WAKEUP);
  return 0;
}

SEC("uprobe")
int frame_seen(struct pt_regs* ctx __attribute__((unused))) {
  __u32 tid = (__u32)current_ids();
  struct dp_torch_thread* thread = bpf_map_lookup_elem(&torch_threads, &tid);
  if (thread && !thread->resting) return 0;
  struct dp_probe_event* event = begin_event(DP_PROBE_FRAME_SEEN, 0, &thread);
  if (event) send(event, BPF_RB_FORCE_WAKEUP);
  return 0;
}
