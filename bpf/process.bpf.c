/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Life of the followed processes: children are followed from their first instruction (a fork has its
 * parent's Python at the same addresses), an exec drops what was known of the old image, and the
 * last thread's exit ends it. These run in process context, not on the sampling path: here, and
 * only here, `processes` is written from BPF. */
#include <linux/bpf.h>
#include <stdbool.h>

#include "bpf/kernel_types.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "bpf/maps.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

static __always_inline void send(__u16 kind, struct task_struct* task, __u32 parent_pid) {
  struct dp_process_event event = {};
  event.header.size = sizeof(event);
  event.header.kind = kind;
  event.header.cpu = bpf_get_smp_processor_id();
  event.header.time_ns = bpf_ktime_get_ns();
  event.header.pid = pid_of(task);
  event.header.tid = tid_of(task);
  event.parent_pid = parent_pid;
  bpf_probe_read_kernel(event.comm, sizeof(event.comm), &task->comm);
  if (bpf_ringbuf_output(&events, &event, sizeof(event), BPF_RB_FORCE_WAKEUP))
    count(DP_COUNT_EVENT_RING_FULL);
}

SEC("raw_tp/sched_process_fork")
int process_fork(struct bpf_raw_tracepoint_args* ctx) {
  struct task_struct* parent = (struct task_struct*)ctx->args[0];
  struct task_struct* child = (struct task_struct*)ctx->args[1];
  __u32 parent_pid = pid_of(parent);
  __u32 child_pid = pid_of(child);
  if (child_pid != tid_of(child)) return 0; /* a thread */
  struct dp_process* process = bpf_map_lookup_elem(&processes, &parent_pid);
  if (!process || !(process->flags & DP_PROCESS_FOLLOW_FORKS)) return 0;
  if (bpf_map_update_elem(&processes, &child_pid, process, BPF_NOEXIST)) {
    count(DP_COUNT_PROCESS_TABLE_FULL);
    return 0;
  }
  send(DP_EVENT_FORK, child, parent_pid);
  return 0;
}

SEC("raw_tp/sched_process_exec")
int process_exec(struct bpf_raw_tracepoint_args* ctx) {
  struct task_struct* task = (struct task_struct*)ctx->args[0];
  __u32 pid = pid_of(task);
  struct dp_process* process = bpf_map_lookup_elem(&processes, &pid);
  if (!process) return 0;
  process->flags &= ~(DP_PROCESS_PYTHON | DP_PROCESS_TORCH);
  process->native_space = 0;
  send(DP_EVENT_EXEC, task, 0);
  return 0;
}

SEC("raw_tp/sched_process_exit")
int process_exit(struct bpf_raw_tracepoint_args* ctx) {
  struct task_struct* task = (struct task_struct*)ctx->args[0];
  __u32 pid = pid_of(task);
  if (!bpf_map_lookup_elem(&processes, &pid)) return 0;
  if (BPF_CORE_READ(task, signal, live.counter) > 0) return 0; /* other threads live on */
  bpf_map_delete_elem(&processes, &pid);
  send(DP_EVENT_EXIT, task, 0);
  return 0;
}
