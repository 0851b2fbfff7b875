/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Which launches need no look at the code objects of their stack: those from a place that the same thread launched
 * from a moment ago. A training step launches from the same hundreds of places again and again.
 *
 * The stack is walked each time, since any frame of it may be at another line; what is left out is reading each
 * frame's code object, most of the cost, and sending the frames. A code object is known by its address then. That
 * address may be another one's by now, so a place is remembered for SITE_AGE_NS only, and not over a phase of a
 * compile, by which torch frees and makes code objects.
 *
 * A memo is one thread's: programs of its launches do not run at the same time. */
#ifndef DYNPROF_BPF_LAUNCH_MEMO_H
#define DYNPROF_BPF_LAUNCH_MEMO_H

#include "bpf/gpu_events.h"
#include "bpf/mix.bpf.h"
#include "bpf/torch_state.bpf.h"

/* Set before load: no launch refers to an earlier one. */
const volatile bool all_launch_stacks;

#define SITE_AGE_NS 250000000ULL
/* A memo that its thread has not used for so long goes to another one. */
#define MEMO_IDLE_NS 10000000000ULL

struct launch_site {
  __u64 key;
  __u64 walked_ns;
  __u32 version; /* in the number of its stack */
  __u32 pad;
};
struct launch_memo {
  __u64 used_ns;
  __u64 since_ns; /* what was walked before is another thread's */
  __u32 pid;
  __u32 tid;
  __u32 versions; /* given out so far */
  __u32 pad;
  struct launch_site sites[DP_LAUNCH_SITES];
};
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, DP_LAUNCH_MEMOS);
  __type(key, __u32);
  __type(value, struct launch_memo);
} launch_memos SEC(".maps");

/* The thread's, 0: it is in use by another one. */
static __always_inline struct launch_memo* memo_of(__u32 pid, __u32 tid, __u64 now) {
  __u32 index = tid & (DP_LAUNCH_MEMOS - 1);
  struct launch_memo* memo = bpf_map_lookup_elem(&launch_memos, &index);
  if (!memo) return 0;
  __u64 used = memo->used_ns;
  if (memo->tid == tid && memo->pid == pid) {
    memo->used_ns = now;
    return memo;
  }
  if (used && now < used + MEMO_IDLE_NS) return 0;
  if (__sync_val_compare_and_swap(&memo->used_ns, used, now) != used) return 0;
  memo->since_ns = now;
  memo->pid = pid;
  memo->tid = tid;
  return memo;
}

/* Of the frames that were walked: which code, at which instruction. */
__noinline __u64 hash_frames(struct walk* walk) {
  if (!walk) return 0;
  __u64 hash = walk->sample.header.tid;
  __u32 frames = walk->sample.frame_count;
  for (__u32 i = 0; i < DP_MAX_PYTHON_FRAMES && i < frames; i++)
    hash = mix(mix(hash, walk->frames[i].code), walk->frames[i].unit);
  return hash;
}

/* A compile is open on this thread: its trace id is sent with each launch. */
static __always_inline bool compiles_now(const struct walk* walk) {
  __u32 tid = walk->sample.header.tid;
  const struct dp_torch_thread* thread = bpf_map_lookup_elem(&torch_threads, &tid);
  __u64 context = 0;
  if (!thread || thread->pid != walk->sample.header.pid || !thread->context.entry) return false;
  return !read_entry(&thread->context, &context) || context != walk->process.none;
}

/* What is remembered of one launch. */
struct launch_place {
  struct launch_memo* memo;
  struct launch_site* site; /* 0: not to be remembered */
  __u64 key;
  __u64 now;
  __u32 index;
};

static __always_inline void find_place(const struct walk* walk, __u64 key,
                                       struct launch_place* place) {
  __u32 pid = walk->sample.header.pid, tid = walk->sample.header.tid;
  place->site = 0;
  if (all_launch_stacks) return;
  place->now = bpf_ktime_get_ns();
  if (walk->sample.flags & (DP_SAMPLE_TRUNCATED | DP_SAMPLE_FRAME_FAULT)) return;
  if (!walk->sample.frame_count || compiles_now(walk)) return;
  place->memo = memo_of(pid, tid, place->now);
  if (!place->memo) return;
  place->key = key;
  place->index = (__u32)(key >> 40) & (DP_LAUNCH_SITES - 1);
  place->site = &place->memo->sites[place->index];
}

/* True: its frames were sent with place_number(). */
static __always_inline bool is_known(const struct launch_place* place, __u32 pid) {
  const struct launch_site* site = place->site;
  const __u64* edge = phase_edge_of(pid);
  return site && site->key == place->key && place->now < site->walked_ns + SITE_AGE_NS &&
         site->walked_ns >= place->memo->since_ns && edge && site->walked_ns > *edge;
}

static __always_inline __u64 place_number(const struct launch_place* place, __u32 tid) {
  return DP_LAUNCH_STACK_NUMBER(tid & (DP_LAUNCH_MEMOS - 1), place->index, place->site->version);
}

/* Its frames are about to be sent with a new number. */
static __always_inline void give_number(const struct launch_place* place) {
  place->site->key = 0; /* until they are */
  place->site->version = ++place->memo->versions;
}

static __always_inline void remember_place(const struct launch_place* place) {
  place->site->walked_ns = place->now;
  place->site->key = place->key;
}

#endif
