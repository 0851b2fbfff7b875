/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What the scheduler keeps of a task, and which is about to run; in programs at its tracepoints. */
#ifndef DYNPROF_BPF_SCHEDULER_H
#define DYNPROF_BPF_SCHEDULER_H

#include "bpf/pids.bpf.h"

/* The scheduler keeps how long a task was ready to run (CONFIG_SCHED_INFO), and its run queue can be
 * reached from the task (CONFIG_FAIR_GROUP_SCHED): the moment of its waking need not be traced. Set
 * before load. */
const volatile bool scheduler_keeps_delays = true;

/* For older kernels' types, whatever user space says. */
static __always_inline bool delays_are_known(void) {
  return scheduler_keeps_delays && bpf_core_field_exists(struct sched_info, last_queued) &&
         bpf_core_field_exists(struct sched_entity, cfs_rq) &&
         bpf_core_field_exists(struct cfs_rq, rq);
}

/* This CPU's: the current task is on it, whatever its class, the idle one included. */
static __always_inline const struct rq* run_queue(void) {
  const struct task_struct* task = bpf_get_current_task_btf();
  return task->se.cfs_rq->rq;
}

/* Of a task that may be read without a helper. */
static __always_inline __u64 ids_of(const struct task_struct* task) {
  return (__u64)(__u32)task->tgid << 32 | (__u32)task->pid;
}

/* The thread that is about to run, where it may be read without a helper; else 0. */
static __always_inline const struct task_struct* next_task(struct bpf_raw_tracepoint_args* ctx) {
  if (!delays_are_known()) return 0;
  const struct task_struct* next = run_queue()->curr;
  return (__u64)next == ctx->args[2] ? next : 0;
}

/* As current_ids(). */
static __always_inline __u64 next_ids(struct bpf_raw_tracepoint_args* ctx,
                                      const struct task_struct* readable) {
  if (!pid_level && readable) return ids_of(readable);
  struct task_struct* next = (struct task_struct*)ctx->args[2];
  return (__u64)pid_of(next) << 32 | tid_of(next);
}

#endif
