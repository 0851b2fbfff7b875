/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Counts runs of compiled regions: how many, how long, and how long torch searched for them.
 *
 * The counts are shared by all CPUs and changed by atomic operations, since a probe may be preempted by another one
 * on the same CPU. There is little contention: above DP_RUN_HITS_PER_SECOND only runs are counted, then nothing,
 * unless the user wants all of them. */
#ifndef DYNPROF_BPF_RUN_COUNTS_BPF_H
#define DYNPROF_BPF_RUN_COUNTS_BPF_H

#include "bpf/maps.bpf.h"

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, DP_MAX_REGIONS);
  __type(key, struct dp_region_key);
  __type(value, __u32); /* index into region_counts */
} region_indices SEC(".maps");

const volatile bool count_all_runs; /* at any rate */

__u32 region_total; /* may exceed DP_MAX_REGIONS */
struct dp_region_count region_counts[DP_MAX_REGIONS];
struct dp_run_rate run_rates[DP_CLOCK_SLOTS];

struct open_run {
  __u64 sp; /* where its function began */
  __u64 node;
  __u64 begin_ns;
  __u64 nested_ns;
  __u32 region; /* index into region_counts */
  __u32 pad;
};
struct thread_runs {
  __u32 pid;
  __u32 slot; /* of the probes: another program in the process has others */
  __u32 depth;
  __u32 pad;
  __u64 search_ns; /* a search began, 0: none is under way */
  __u64 lookup_ns; /* length of the last one, 0: none since the last run */
  struct open_run runs[DP_OPEN_RUNS];
};

/* By thread. Least recently used ones make room: nothing shows that a thread has ended. */
struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, DP_MAX_RUN_THREADS);
  __type(key, __u32);
  __type(value, struct thread_runs);
} thread_runs SEC(".maps");

static const struct thread_runs no_runs;

/* A probe was hit. */
struct run_probe {
  struct dp_run_rate* rate;
  const struct dp_process* process;
  __u64 now_ns;
  __u64 sp;
  __u32 pid;
  __u32 tid;
  __u32 slot;
};

static __always_inline __u32 limits_times(const struct run_probe* probe) {
  return probe->process->flags & DP_PROCESS_GPU_WORK ? DP_RUN_LIMITS_FOR_GPU : 1;
}

/* True: this hit is above the limit. Each stage has a count of its own: one that began anew could be overwritten by a
 * hit on another CPU. */
static __always_inline bool above_limit(const struct run_probe* probe, bool timed) {
  struct dp_run_rate* rate = probe->rate;
  __u64 second = probe->now_ns / 1000000000;
  if (rate->second != second) {
    rate->second = second;
    rate->runs = rate->hits_now = rate->begins_now = 0;
    if (second - rate->hits_second >= DP_RUN_HITS_SECONDS) {
      rate->hits_second = second;
      rate->hits = rate->begins = 0;
    }
  }
  __u32 hits = timed ? ++rate->hits : ++rate->begins;
  __u32 now = timed ? ++rate->hits_now : ++rate->begins_now;
  __u32 times = limits_times(probe);
  return (hits > DP_RUN_HITS_PER_SECOND * DP_RUN_HITS_SECONDS * times ||
          now > DP_RUN_HITS_AT_ONCE * times) &&
         !count_all_runs;
}

static __always_inline __u32 events_limit(const struct run_probe* probe) {
  return DP_RUN_EVENTS_PER_SECOND * limits_times(probe);
}

/* True: too many to send each. */
static __always_inline bool too_many_to_send(const struct run_probe* probe,
                                             __u32 runs_of_a_second) {
  bool all = count_all_runs && probe->process->flags & DP_PROCESS_GPU_WORK;
  return runs_of_a_second > events_limit(probe) && !all;
}

/* True: only this call has set it. */
static __always_inline bool set_first(struct dp_run_rate* rate, __u32 flag) {
  return !(rate->flags & flag) && !(__sync_fetch_and_or(&rate->flags, flag) & flag);
}

/* The same index, below a power of two in a way that no compiler rearranges: Linux 6.1 and 6.12 do not follow a check
 * of a copy of it. */
static __always_inline __u32 bounded(__u32 index, __u32 power_of_two) {
  asm volatile("" : "+r"(index));
  return index & (power_of_two - 1);
}

/* Null: the table is full. */
static __always_inline struct dp_region_count* region_at(__u32 index) {
  return index < DP_MAX_REGIONS ? &region_counts[bounded(index, DP_MAX_REGIONS)] : 0;
}

/* The innermost run of a thread that has `depth` of them, at least one. */
static __always_inline struct open_run* innermost(struct thread_runs* thread, __u32 depth) {
  return &thread->runs[bounded(depth - 1, DP_OPEN_RUNS)];
}

static __always_inline __u32 find_region(const struct dp_region_key* key) {
  __u32* known = bpf_map_lookup_elem(&region_indices, key);
  if (known) return *known;
  __u32 index = DP_MAX_REGIONS;
  if (region_total < DP_MAX_REGIONS) index = __sync_fetch_and_add(&region_total, 1);
  struct dp_region_count* region = region_at(index);
  if (!region) {
    count(DP_COUNT_REGION_TABLE_FULL);
    return DP_MAX_REGIONS;
  }
  if (bpf_map_update_elem(&region_indices, key, &index, BPF_NOEXIST)) {
    /* Another thread was faster: this place stays empty. */
    known = bpf_map_lookup_elem(&region_indices, key);
    return known ? *known : DP_MAX_REGIONS;
  }
  region->key.code = key->code;
  region->key.probe = key->probe;
  __builtin_memcpy(region->key.name, key->name, sizeof(key->name));
  __sync_lock_test_and_set(&region->key.pid, key->pid); /* last: now it may be read */
  return index;
}

/* Null: nothing is known of it. */
static __always_inline struct thread_runs* known_runs(const struct run_probe* probe) {
  struct thread_runs* thread = bpf_map_lookup_elem(&thread_runs, &probe->tid);
  return thread && thread->pid == probe->pid && thread->slot == probe->slot ? thread : 0;
}

/* Null: the table is full of threads that are in use. */
static __always_inline struct thread_runs* runs_of_thread(const struct run_probe* probe) {
  struct thread_runs* thread = bpf_map_lookup_elem(&thread_runs, &probe->tid);
  if (!thread) {
    bpf_map_update_elem(&thread_runs, &probe->tid, &no_runs, BPF_NOEXIST);
    thread = bpf_map_lookup_elem(&thread_runs, &probe->tid);
    if (!thread) {
      count(DP_COUNT_RUN_TABLE_FULL);
      return 0;
    }
  }
  if (thread->pid != probe->pid || thread->slot != probe->slot) {
    thread->pid = probe->pid;
    thread->slot = probe->slot;
    thread->depth = 0;
    thread->search_ns = thread->lookup_ns = 0;
  }
  return thread;
}

static __always_inline void count_run(const struct run_probe* probe,
                                      const struct dp_region_key* key, __u64 node) {
  __u32 index = find_region(key);
  struct dp_region_count* region = region_at(index);
  if (!region) return;
  __sync_fetch_and_add(&region->calls, 1);
  if (probe->rate->flags & DP_RUNS_NOT_TIMED) return;
  struct thread_runs* thread = runs_of_thread(probe);
  if (!thread) return;
  if (key->probe == DP_PROBE_REGION_BEGIN) {
    if (thread->lookup_ns) {
      __sync_fetch_and_add(&region->lookups, 1);
      __sync_fetch_and_add(&region->lookup_ns, thread->lookup_ns);
    }
    thread->lookup_ns = 0;
  }
  /* Stacks grow down: runs with a lower stack pointer were left by an exception. */
  __u32 depth = thread->depth;
  for (__u32 i = 0; i < DP_OPEN_RUNS; i++) {
    if (depth == 0 || depth > DP_OPEN_RUNS || innermost(thread, depth)->sp > probe->sp) break;
    depth--;
  }
  if (depth < DP_OPEN_RUNS) {
    struct open_run* run = innermost(thread, depth + 1);
    run->sp = probe->sp;
    run->node = node;
    run->begin_ns = probe->now_ns;
    run->nested_ns = 0;
    run->region = index;
    depth++;
  }
  thread->depth = depth;
}

/* The innermost run of this node (0: of a region; any: of any node) whose function began above the probe's ends. */
static __always_inline void count_end(const struct run_probe* probe, __u64 node, bool any) {
  struct thread_runs* thread = known_runs(probe);
  if (!thread) return;
  __u32 depth = thread->depth;
  for (__u32 i = 0; i < DP_OPEN_RUNS; i++) {
    if (depth == 0 || depth > DP_OPEN_RUNS) return;
    const struct open_run* run = innermost(thread, depth);
    if (run->sp > probe->sp && (any ? run->node != 0 : run->node == node)) break;
    depth--;
  }
  if (depth == 0 || depth > DP_OPEN_RUNS) return;
  const struct open_run* run = innermost(thread, depth);
  struct dp_region_count* region = region_at(run->region);
  thread->depth = depth - 1;
  if (!region || probe->now_ns < run->begin_ns) return;
  __u64 length = probe->now_ns - run->begin_ns;
  __sync_fetch_and_add(&region->timed, 1);
  __sync_fetch_and_add(&region->time_ns, length);
  __sync_fetch_and_add(&region->nested_ns, run->nested_ns);
  if (depth >= 2) innermost(thread, depth - 1)->nested_ns += length;
}

/* torch compiles on this thread: the runs it is in have no length. */
static __always_inline void forget_open_runs(__u32 tid) {
  struct thread_runs* thread = bpf_map_lookup_elem(&thread_runs, &tid);
  if (thread) thread->depth = 0;
}

/* torch begins to search for a region; it has searched. */
static __always_inline void search_begins(const struct run_probe* probe) {
  struct thread_runs* thread = runs_of_thread(probe);
  if (thread) thread->search_ns = probe->now_ns;
}

static __always_inline void search_ends(const struct run_probe* probe) {
  struct thread_runs* thread = known_runs(probe);
  if (!thread || !thread->search_ns) return;
  thread->lookup_ns = probe->now_ns - thread->search_ns;
  thread->search_ns = 0;
}

#endif
