/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* How long each thread of the followed processes is on and off the CPU: what is kept for it, and what
 * becomes of a wait when it is over. */
#ifndef DYNPROF_BPF_THREAD_TIMES_H
#define DYNPROF_BPF_THREAD_TIMES_H

#include "bpf/maps.bpf.h"
#include "bpf/scheduler.bpf.h"

/* A wait at least this long is an event of its own; set before load. */
const volatile __u64 wait_threshold_ns = 1000000;

/* A sum of short waits goes out after this long. */
#define SUM_AGE_NS 10000000ULL
#define PF_EXITING 0x4

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1); /* one per possible CPU, set before load */
  __type(key, __u32);
  __type(value, struct dp_wait_sums);
} wait_sums SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, DP_THREAD_TIMES);
  __type(key, __u32);
  __type(value, struct dp_thread_time);
} thread_times SEC(".maps");

/* ---- threads ---------------------------------------------------------------------------------- */

static __always_inline void send_wait(const struct dp_wait_event* event) {
  if (bpf_ringbuf_output(&events, (void*)event, sizeof(*event), BPF_RB_NO_WAKEUP))
    count(DP_COUNT_WAIT_RING_FULL);
}

static __always_inline void fill_event(struct dp_wait_event* event,
                                       const struct dp_thread_time* place, __u64 now) {
  __builtin_memset(event, 0, sizeof(*event));
  event->header.size = sizeof(*event);
  event->header.kind = DP_EVENT_WAIT;
  event->header.cpu = bpf_get_smp_processor_id();
  event->header.time_ns = now;
  event->header.pid = place->pid;
  event->header.tid = place->tid;
  event->begin_ns = now;
  event->cpu_ns = place->cpu_ns;
  event->call = -1;
}

static __always_inline void send_sum(struct dp_thread_time* place) {
  if (place->sum.count) send_wait(&place->sum);
  place->sum.count = 0;
}

/* Reports the thread's time on the CPU until now. */
static __noinline void send_mark(struct dp_thread_time* place, __u64 now) {
  struct dp_wait_event event;
  fill_event(&event, place, now);
  event.count = 1;
  event.flags = DP_WAIT_MARK;
  send_wait(&event);
}

/* A thread met for the first time: its time on the CPU counts from here. */
static __noinline void begin_thread(struct dp_thread_time* place, __u32 pid, __u32 tid, __u64 now) {
  send_sum(place); /* of an older thread of that number */
  __builtin_memset(place, 0, sizeof(*place));
  place->tid = tid;
  place->pid = pid;
  send_mark(place, now);
}

static __always_inline struct dp_thread_time* place_of(__u32 tid) {
  __u32 slot = tid & (DP_THREAD_TIMES - 1);
  return bpf_map_lookup_elem(&thread_times, &slot);
}

/* The place of a followed process's thread, 0: it is of another process, or has none. A thread keeps it until
 * it ends, so a thread that has one is followed. */
static __always_inline struct dp_thread_time* followed_place(__u64 ids,
                                                             const struct task_struct* task,
                                                             __u64* now) {
  __u32 pid = ids >> 32, tid = (__u32)ids;
  if (!tid) return 0; /* the idle thread */
  struct dp_thread_time* place = place_of(tid);
  if (!place) return 0;
  bool ended = pid_level && (place->flags & DP_THREAD_ENDED);
  bool met = place->tid == tid && place->pid == pid && !ended;
  if (!met) {
    if (ended && task && (task->flags & PF_EXITING)) return 0; /* still on its way */
    if (!bpf_map_lookup_elem(&processes, &pid)) return 0;
    if (place->tid && place->tid != tid && !ended) {
      count(DP_COUNT_WAIT_COLLISION);
      return 0;
    }
  }
  if (!*now) *now = bpf_ktime_get_ns();
  if (!met) begin_thread(place, pid, tid, *now);
  return place;
}

/* ---- the end of a wait ------------------------------------------------------------------------ */

static __always_inline bool same_place(const struct dp_wait_event* sum,
                                       const struct dp_thread_time* place) {
  return sum->header.tid == place->tid && sum->stack == place->stack && sum->call == place->call &&
         sum->flags == place->flags && sum->mode == place->mode;
}

static __always_inline void describe(struct dp_wait_event* event,
                                     const struct dp_thread_time* place, __u64 now) {
  fill_event(event, place, now);
  event->begin_ns = place->out_ns;
  event->stack = place->stack;
  event->call = place->call;
  event->mode = place->mode;
  event->flags = place->flags;
  event->state = place->state;
}

static __noinline void send_long(struct dp_thread_time* place, __u64 now, __u64 runnable) {
  struct dp_wait_event event;
  describe(&event, place, now);
  event.length_ns = now - place->out_ns;
  event.runnable_ns = runnable;
  event.count = 1;
  send_wait(&event);
}

static __always_inline void add_to(struct dp_wait_event* sum, const struct dp_thread_time* place,
                                   __u64 now, __u64 runnable) {
  sum->header.time_ns = now;
  sum->cpu_ns = place->cpu_ns;
  sum->length_ns += now - place->out_ns;
  sum->runnable_ns += runnable;
  sum->count += 1;
}

/* A sum kept by this CPU, until it is old or its slot is needed. */
static __noinline void add_to_cpu(struct dp_thread_time* place, __u64 now, __u64 runnable) {
  __u32 cpu = bpf_get_smp_processor_id();
  struct dp_wait_sums* sums = bpf_map_lookup_elem(&wait_sums, &cpu);
  if (!sums) {
    count(DP_COUNT_NO_SCRATCH);
    return;
  }
  __u64 hash = (place->stack * 31 + place->tid + place->flags) * 0x9e3779b97f4a7c15ULL;
  struct dp_wait_event* sum = &sums->slots[(hash >> 40) & (DP_WAIT_SUM_SLOTS - 1)];
  if (sum->count && (!same_place(sum, place) || now - sum->begin_ns > SUM_AGE_NS)) {
    send_wait(sum);
    sum->count = 0;
  }
  if (!sum->count) describe(sum, place, now);
  add_to(sum, place, now, runnable);
}

/* Adds a short wait to the sum of its place. Of one place the thread keeps it, of others the CPU. */
static __always_inline void sum_up(struct dp_thread_time* place, __u64 now, __u64 runnable) {
  struct dp_wait_event* sum = &place->sum;
  bool same = same_place(sum, place), old = now - sum->begin_ns > SUM_AGE_NS;
  if (sum->count && !same && !old) {
    add_to_cpu(place, now, runnable);
    return;
  }
  if (!sum->count || old) {
    send_sum(place);
    describe(sum, place, now);
  }
  add_to(sum, place, now, runnable);
}

/* How much of its time off the CPU the thread that is about to run could have run: what the scheduler
 * added to its run_delay since, and what it will add now. */
static __always_inline __u64 ready_ns(const struct dp_thread_time* place,
                                      const struct task_struct* task) {
  __u64 queued = task->sched_info.last_queued, clock = run_queue()->clock;
  __u64 waits = queued && queued < clock ? clock - queued : 0;
  if (place->flags & DP_WAIT_AT_ATTACH) return waits;
  return waits + (task->sched_info.run_delay - place->delay_ns);
}

/* The thread ran again from `now` on. */
static __always_inline void end_wait(struct dp_thread_time* place, const struct task_struct* task,
                                     __u64 now) {
  __u64 begin = place->out_ns, length = now - begin, runnable = 0;
  if (begin && begin < now) {
    if (place->flags & DP_WAIT_PREEMPTED)
      runnable = length;
    else if (delays_are_known() && task)
      runnable = ready_ns(place, task);
    else if (place->wake_ns > begin && place->wake_ns < now)
      runnable = now - place->wake_ns;
    if (runnable > length) runnable = length;
    if (length >= wait_threshold_ns)
      send_long(place, now, runnable);
    else
      sum_up(place, now, runnable);
  }
  place->out_ns = 0;
  place->in_ns = now;
  place->wake_ns = 0;
  place->flags = 0;
}

/* Linux 6.18 in a virtual machine leaves out some switches from the idle thread and from a few others
 * (perf does not see them either). What the thread ran meanwhile is what the scheduler counted. */

/* A thread is about to run that was never seen to leave the CPU. What it waited for, and whether it did,
 * is not known. */
static __noinline void end_unseen_wait(struct dp_thread_time* place, __u64 exec_ns, __u64 now) {
  __u64 ran = exec_ns - place->exec_ns;
  __u64 since = now - place->in_ns;
  count(DP_COUNT_SWITCH_UNTOLD);
  if (ran >= since) return; /* it ran all the time */
  place->cpu_ns += ran;
  place->exec_ns = exec_ns;
  place->out_ns = place->in_ns + ran;
  place->stack = 0;
  place->call = DP_CALL_UNKNOWN;
  place->mode = 0;
  place->state = 0;
  end_wait(place, 0, now);
}

/* The thread gets the CPU. `task`: 0 where it may not be read without a helper. */
static __always_inline void switch_in(struct dp_thread_time* place, const struct task_struct* task,
                                      struct task_struct* next, __u64 now) {
  if (!place->out_ns && place->in_ns)
    end_unseen_wait(place, BPF_CORE_READ(next, se.sum_exec_runtime), now);
  else
    end_wait(place, task, now);
  if (!place->exec_ns) place->exec_ns = BPF_CORE_READ(next, se.sum_exec_runtime);
}

/* A thread leaves the CPU that was never seen to come back. */
static __noinline void end_untold_wait(struct dp_thread_time* place, __u64 exec_ns, __u64 now) {
  __u64 ran = exec_ns - place->exec_ns;
  __u64 since = now - place->out_ns;
  count(DP_COUNT_SWITCH_UNTOLD);
  end_wait(place, bpf_get_current_task_btf(), ran < since ? now - ran : place->out_ns);
}

/* The thread leaves the CPU. */
static __always_inline void switch_out(struct dp_thread_time* place, const struct task_struct* task,
                                       bool preempted, __u32 state, __u64 now) {
  __u64 exec_ns = task->se.sum_exec_runtime;
  /* It was running when the recording began, or nothing tells that it was not. */
  if (place->out_ns && (place->flags & DP_WAIT_AT_ATTACH) &&
      ((place->flags & DP_WAIT_PREEMPTED) || !place->exec_ns))
    place->in_ns = place->out_ns;
  else if (place->out_ns)
    end_untold_wait(place, exec_ns, now);
  if (place->in_ns) place->cpu_ns += now - place->in_ns;
  place->wake_ns = 0;
  place->stack = 0;
  place->mode = 0;
  place->call = -1;
  place->state = (__u8)state;
  place->flags = preempted || !state ? DP_WAIT_PREEMPTED : 0;
  place->out_ns = now;
  place->exec_ns = exec_ns;
  if (delays_are_known()) place->delay_ns = task->sched_info.run_delay;
}

#endif
