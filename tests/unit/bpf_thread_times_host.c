/* See bpf_thread_times_host.h. */
#include "tests/unit/bpf_thread_times_host.h"

#include <linux/bpf.h>
#include <stdbool.h>
#include <string.h>

#include "tests/unit/bpf_host.h"

/* bpf_walk_host.c has these too. */
#define counters times_counters
#define events times_events
#define pid_inode times_pid_inode
#define pid_level times_pid_level
#define processes times_processes

#define THREAD 7
#define TASK_INTERRUPTIBLE 1

static struct rq host_queue;
static struct cfs_rq host_fair_queue = {.rq = &host_queue};
static struct task_struct host_task = {.se = {.cfs_rq = &host_fair_queue}};
static struct dp_thread_time host_time;
static __u64 host_untold;
static dp_host_event host_send;
static void* host_context;

static void* host_lookup(const void* map, const void* key);
#define bpf_map_lookup_elem(map, key) host_lookup(map, key)

static inline long bpf_ringbuf_output(const void* ring, void* data, __u64 size, __u64 flags) {
  (void)ring, (void)size, (void)flags;
  host_send(host_context, data);
  return 0;
}
static inline __u64 bpf_ktime_get_ns(void) { return 0; }
static inline __u64 bpf_get_current_task(void) { return (__u64)&host_task; }
static inline struct task_struct* bpf_get_current_task_btf(void) { return &host_task; }
static inline __u32 bpf_get_smp_processor_id(void) { return 0; }
static inline __u64 bpf_get_current_pid_tgid(void) { return (__u64)THREAD << 32 | THREAD; }

#include "bpf/thread_times.bpf.h"

static void* host_lookup(const void* map, const void* key) {
  static __u64 others;
  static struct dp_wait_sums sums;
  if (map == &wait_sums) return &sums;
  if (map == &counters)
    return *(const __u32*)key == DP_COUNT_SWITCH_UNTOLD ? &host_untold : &others;
  return NULL;
}

void dp_host_new_thread(dp_host_event send, void* context) {
  memset(&host_time, 0, sizeof host_time);
  host_time.pid = host_time.tid = THREAD;
  host_untold = 0;
  host_send = send;
  host_context = context;
}

void dp_host_found_thread(__u64 now, __u64 exec_ns, int preempted) {
  host_time.out_ns = now;
  host_time.exec_ns = exec_ns;
  host_time.call = -1;
  host_time.flags = DP_WAIT_AT_ATTACH | (preempted ? DP_WAIT_PREEMPTED : 0);
}

void dp_host_switched_in(__u64 now, __u64 exec_ns) {
  host_task.se.sum_exec_runtime = exec_ns;
  switch_in(&host_time, &host_task, &host_task, now);
}

void dp_host_switched_out(__u64 now, __u64 exec_ns, int preempted) {
  host_task.se.sum_exec_runtime = exec_ns;
  switch_out(&host_time, &host_task, preempted, TASK_INTERRUPTIBLE, now);
}

struct dp_thread_time dp_host_thread_time(void) { return host_time; }

__u64 dp_host_untold(void) { return host_untold; }
