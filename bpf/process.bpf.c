/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Life of the followed processes: children are followed from their first instruction (a fork has its
 * parent's Python at the same addresses), an exec drops what was known of the old image, and the
 * last thread's exit ends it. Its final CPU time is known when it is freed, after its
 * parent waited for it. These run in process context, not on the sampling path (the last one after a
 * grace period): here, and only here, `processes` is written from BPF. */
#include <linux/bpf.h>
#include <stdbool.h>

#include "bpf/kernel_types.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "bpf/ended_process.h"
#include "bpf/maps.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Off: names alone, no command lines. */
const volatile bool keep_command_lines = true;

#define SIGNAL_GROUP_EXIT 4u /* include/linux/sched/signal.h */
/* Where processes come by the thousand user space is not woken for each of them. */
#define WAKE_EVERY_NS 2000000

/* Processes that ended and were not freed yet, by their leader's task_struct. */
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, DP_MAX_PROCESSES);
  __type(key, __u64);
  __type(value, struct dp_ended_process);
} ended SEC(".maps");

static __u64 last_wake_ns; /* two CPUs may both wake: no harm */

/* For a program that begins: until user space has seen what it maps its samples have no native frames. */
static __always_inline __u64 wake_flag(void) {
  __u64 now = bpf_ktime_get_ns();
  if (now - last_wake_ns < WAKE_EVERY_NS) return BPF_RB_NO_WAKEUP;
  last_wake_ns = now;
  return BPF_RB_FORCE_WAKEUP;
}

static __always_inline void fill(struct dp_process_event* event, __u16 kind,
                                 struct task_struct* task) {
  event->header.size = sizeof(*event);
  event->header.kind = kind;
  event->header.cpu = bpf_get_smp_processor_id();
  event->header.time_ns = bpf_ktime_get_ns();
  event->header.pid = pid_of(task);
  event->header.tid = tid_of(task);
  event->parent_pid = 0;
  event->parent_tid = 0;
  event->cpu_ns = 0;
  event->exit_code = 0;
  event->args_size = 0;
  event->args_whole = 0;
  event->peak_of = DP_PEAK_NONE;
  event->peak_bytes = 0;
  bpf_probe_read_kernel(event->comm, sizeof(event->comm), &task->comm);
}

static __always_inline void send(struct dp_process_event* event) {
  if (bpf_ringbuf_output(&events, event, sizeof(*event), BPF_RB_NO_WAKEUP))
    count(DP_COUNT_EVENT_RING_FULL);
}

/* Of the threads that were released, of this one, and of the leader if it is gone already. */
static __always_inline __u64 cpu_time(struct task_struct* task) {
  struct task_struct* leader = BPF_CORE_READ(task, group_leader);
  __u64 sum = BPF_CORE_READ(task, signal, sum_sched_runtime);
  sum += BPF_CORE_READ(task, se.sum_exec_runtime);
  if (leader != task) sum += BPF_CORE_READ(leader, se.sum_exec_runtime);
  return sum;
}

/* What the program had in memory at most: hiwater_rss is not kept up while memory grows. */
static __always_inline __u64 program_peak_pages(struct mm_struct* mm) {
  if (!bpf_core_field_exists(mm->rss_stat[0].count)) return 0;
  long long now = BPF_CORE_READ(mm, rss_stat[DP_MM_FILEPAGES].count) +
                  BPF_CORE_READ(mm, rss_stat[DP_MM_ANONPAGES].count) +
                  BPF_CORE_READ(mm, rss_stat[DP_MM_SHMEMPAGES].count);
  __u64 before = BPF_CORE_READ(mm, hiwater_rss);
  return now > 0 && (__u64)now > before ? (__u64)now : before;
}

/* At its end. From Linux 6.16 on the program still has its memory then; before, the kernel's own sum over all
 * programs of the process has to do. */
static __always_inline void add_peak(struct dp_process_event* event, struct task_struct* task) {
  struct mm_struct* mm = BPF_CORE_READ(task, mm);
  __u64 pages = mm ? program_peak_pages(mm) : 0;
  event->peak_of = pages ? DP_PEAK_PROGRAM : DP_PEAK_PROCESS;
  if (!pages) pages = BPF_CORE_READ(task, signal, maxrss);
  event->peak_bytes = pages * DP_PAGE_BYTES;
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
  struct dp_process_event event;
  fill(&event, DP_EVENT_FORK, child);
  event.parent_pid = parent_pid;
  event.parent_tid = tid_of(parent);
  send(&event);
  return 0;
}

/* The room for the command line is one of a few constants: the ring buffer needs a constant size. */
static __always_inline bool send_exec(struct task_struct* task, struct linux_binprm* image,
                                      __u64 args, __u32 whole, __u32 room) {
  struct dp_exec_event* event = bpf_ringbuf_reserve(&events, sizeof(*event) + room, 0);
  if (!event) return false;
  fill(&event->process, DP_EVENT_EXEC, task);
  event->process.cpu_ns = cpu_time(task);
  event->process.args_whole = whole;
  event->process.peak_of = DP_PEAK_BEFORE_EXEC;
  event->process.peak_bytes = BPF_CORE_READ(task, signal, maxrss) * DP_PAGE_BYTES;
  const char* path = BPF_CORE_READ(image, filename);
  if (bpf_probe_read_kernel_str(event->exe, sizeof(event->exe), path) < 0) event->exe[0] = 0;
  __u32 size = whole < room ? whole : room;
  if (size && bpf_probe_read_user(event->args, size, (const void*)args)) {
    count(DP_COUNT_COMMAND_LINE_FAULT);
    size = 0;
  }
  event->process.args_size = size;
  event->process.header.size = sizeof(*event) + size;
  bpf_ringbuf_submit(event, wake_flag());
  return true;
}

SEC("raw_tp/sched_process_exec")
int process_exec(struct bpf_raw_tracepoint_args* ctx) {
  struct task_struct* task = (struct task_struct*)ctx->args[0];
  struct linux_binprm* image = (struct linux_binprm*)ctx->args[2];
  __u32 pid = pid_of(task);
  struct dp_process* process = bpf_map_lookup_elem(&processes, &pid);
  if (!process) return 0;
  process->flags &= ~(DP_PROCESS_PYTHON | DP_PROCESS_TORCH);
  process->native_space = 0;
  __u64 begin = BPF_CORE_READ(task, mm, arg_start);
  __u64 end = BPF_CORE_READ(task, mm, arg_end);
  __u64 length = end > begin ? end - begin : 0;
  __u32 whole = length > 0x7fffffff ? 0x7fffffff : length;
  if (!keep_command_lines) whole = 0;
  bool sent;
  if (whole <= 256)
    sent = send_exec(task, image, begin, whole, 256);
  else if (whole <= 1024)
    sent = send_exec(task, image, begin, whole, 1024);
  else
    sent = send_exec(task, image, begin, whole, DP_COMMAND_LINE_BYTES);
  if (!sent) count(DP_COUNT_EVENT_RING_FULL);
  return 0;
}

SEC("raw_tp/sched_process_exit")
int process_exit(struct bpf_raw_tracepoint_args* ctx) {
  struct task_struct* task = (struct task_struct*)ctx->args[0];
  __u32 pid = pid_of(task);
  if (!bpf_map_lookup_elem(&processes, &pid)) return 0;
  if (BPF_CORE_READ(task, signal, live.counter) > 0) return 0; /* other threads live on */
  bpf_map_delete_elem(&processes, &pid);
  struct task_struct* leader = BPF_CORE_READ(task, group_leader);
  __u64 key = (__u64)leader;
  struct dp_ended_process end = {.pid = pid, .tgid = BPF_CORE_READ(leader, tgid)};
  if (bpf_map_update_elem(&ended, &key, &end, BPF_ANY)) count(DP_COUNT_ENDED_TABLE_FULL);
  struct dp_process_event event;
  fill(&event, DP_EVENT_EXIT, task);
  event.cpu_ns = cpu_time(task);
  event.exit_code = BPF_CORE_READ(task, signal, flags) & SIGNAL_GROUP_EXIT
                        ? BPF_CORE_READ(task, signal, group_exit_code)
                        : BPF_CORE_READ(leader, exit_code);
  add_peak(&event, task);
  send(&event);
  return 0;
}

SEC("raw_tp/sched_process_free")
int process_freed(struct bpf_raw_tracepoint_args* ctx) {
  struct task_struct* task = (struct task_struct*)ctx->args[0];
  __u64 key = (__u64)task;
  struct dp_ended_process* entry = bpf_map_lookup_elem(&ended, &key);
  if (!entry) return 0;
  struct dp_ended_process end = *entry;
  bpf_map_delete_elem(&ended, &key);
  if (end.tgid != (__u32)BPF_CORE_READ(task, tgid)) return 0;
  struct dp_process_event event;
  fill(&event, DP_EVENT_REAPED, task);
  event.header.pid = end.pid;
  event.cpu_ns = BPF_CORE_READ(task, signal, sum_sched_runtime);
  send(&event);
  return 0;
}
