/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Which waits need no walk of their stack: those of a place that was walked not long ago. */
#ifndef DYNPROF_BPF_WAIT_MEMO_H
#define DYNPROF_BPF_WAIT_MEMO_H

#include "bpf/wait_key.bpf.h"

/* Stacks walked per second and CPU, and how many of them at once. */
#define WALK_COST_NS (1000000000ULL / 1000)
#define WALK_BURST_NS (500 * WALK_COST_NS)
/* A remembered stack is walked again after this long: what led to a wait is not all of its stack. */
#define MEMO_AGE_NS 1000000000ULL

struct memo_entry {
  __u64 key;
  __u64 stack;
  __u64 walked_ns;
  __u32 fd; /* + 1: of which `mode` is, 0: none */
  __u16 mode;
  __u16 pad;
};
struct wait_memo {
  __u64 stacks;    /* walked on this CPU so far */
  __u64 credit_ns; /* the token bucket */
  __u64 refilled_ns;
  struct memo_entry entries[DP_WAIT_MEMO_SLOTS];
};

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1); /* one per possible CPU, set before load */
  __type(key, __u32);
  __type(value, struct wait_memo);
} wait_memos SEC(".maps");

/* A place where a thread waits again and again, hundreds or thousands of times a second: known by its
 * top Python frame alone, without its callers and torch's compile. */
struct quick_place {
  __u64 stack; /* as last asked; 0: not known */
  __u64 last_ns;
  __u64 asked_ns;
  struct top_frame top;
  __u16 streak; /* waits there, each soon after the one before, up to QUICK_STREAK */
  __u16 left;   /* waits until it is asked again */
  __u16 mode;
  __u16 pad;
};
#define QUICK_WAYS 4
#define QUICK_STREAK 16
#define QUICK_WAITS 64 /* on average until it is asked again */
#define QUICK_GAP_NS 1000000ULL
#define QUICK_AGE_NS 10000000ULL
#define PLAIN_AGE_NS 100000000ULL /* ... of threads that knew nothing of Python */

struct quick_places {
  __u64 keys[QUICK_WAYS]; /* of `ways` */
  __u64 thread_state;     /* of CPython, as last found */
  struct frame_fields fields;
  __u64 next; /* which way goes to the next new key: in turn */
  struct quick_place ways[QUICK_WAYS];
};

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, DP_THREAD_TIMES);
  __type(key, __u32);
  __type(value, struct quick_places);
} quick_places SEC(".maps");

static __always_inline bool take_token(struct wait_memo* memo, __u64 now) {
  __u64 credit = memo->credit_ns + (now - memo->refilled_ns);
  if (credit > WALK_BURST_NS) credit = WALK_BURST_NS;
  memo->refilled_ns = now;
  bool may = credit >= WALK_COST_NS;
  memo->credit_ns = may ? credit - WALK_COST_NS : credit;
  return may;
}

/* Which way is that key's; where none was, the one that was given out longest ago, with QUICK_NEW. A
 * function that the verifier looks at alone: to its caller it is one number, not five cases. */
#define QUICK_NEW QUICK_WAYS
__noinline __u32 quick_way(struct quick_places* places, __u64 key) {
  if (!places) return 0;
  for (__u32 i = 0; i < QUICK_WAYS; i++)
    if (places->keys[i] == key) return i;
  __u32 way = places->next++ & (QUICK_WAYS - 1);
  places->keys[way] = key;
  return way | QUICK_NEW;
}

/* The thread has waited here many times just now, or knows nothing of Python: then the key is all there
 * is. From time to time it is checked again, at irregular intervals, since its waits may be periodic. */
static __always_inline bool often_enough(struct quick_place* quick, bool same, __u64 now) {
  bool soon = now - quick->last_ns < QUICK_GAP_NS;
  bool plain = same && quick->stack && !quick->top.kept_at;
  quick->last_ns = now;
  if (!plain && (!same || !soon)) {
    quick->streak = 0;
    return false;
  }
  if (!plain && quick->streak < QUICK_STREAK) {
    quick->streak++;
    return false;
  }
  return quick->stack && quick->left &&
         now - quick->asked_ns < (plain ? PLAIN_AGE_NS : QUICK_AGE_NS);
}

/* True: the wait's stack is taken to be the one it had here before. */
static __always_inline bool quickly_known(const struct quick_places* places,
                                          struct quick_place* quick, struct dp_thread_time* place,
                                          bool same, struct walk* walk, __u64 now) {
  if (!often_enough(quick, same, now) || !is_top_frame(walk, &quick->top, &places->fields))
    return false;
  quick->left--;
  place->stack = quick->stack;
  place->mode = quick->mode;
  return true;
}

static __always_inline void answer(struct quick_place* quick, const struct memo_entry* entry,
                                   __u64 now) {
  quick->stack = entry->stack;
  quick->mode = entry->mode;
  quick->asked_ns = now;
  quick->left = QUICK_WAITS / 2 + (bpf_get_prandom_u32() & (QUICK_WAITS - 1));
}

/* The stack remembered for the key, if it is. True: it is to be walked, under a new number. */
static __always_inline bool remember(struct dp_thread_time* place, struct quick_place* quick,
                                     __u64 key, __u32 fd, __u64 now) {
  __u32 cpu = bpf_get_smp_processor_id();
  struct wait_memo* memo = bpf_map_lookup_elem(&wait_memos, &cpu);
  if (!memo) return false;
  /* Two waits in turn that shared one slot would be walked each time: a key may lie in two. */
  __u32 slot = (key >> 40) & (DP_WAIT_MEMO_SLOTS - 1);
  struct memo_entry* entry = &memo->entries[slot];
  struct memo_entry* other = &memo->entries[slot ^ 1];
  if (entry->key != key && (other->key == key || other->walked_ns < entry->walked_ns))
    entry = other;
  bool known = entry->key == key && entry->stack;
  if (known) {
    place->stack = entry->stack;
    place->mode = entry->mode;
    answer(quick, entry, now);
    if (now - entry->walked_ns < MEMO_AGE_NS) return false;
  } else if (dp_call_names_file(place->call)) {
    place->mode = mode_of(fd);
  }
  if (!take_token(memo, now)) {
    if (!known) count(DP_COUNT_WAIT_NO_TOKEN);
    return false;
  }
  memo->stacks += 1;
  entry->key = key;
  entry->walked_ns = now;
  entry->mode = place->mode;
  entry->stack = place->stack = ((__u64)cpu + 1) << 40 | (memo->stacks & ((1ULL << 40) - 1));
  return true;
}

#endif
