/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Reads what torch keeps per thread (source T of the attribution): the compile context and the list
 * of open phases. User space has looked up where; every pointer is checked against what it saw. */
#ifndef DYNPROF_BPF_TORCH_STATE_H
#define DYNPROF_BPF_TORCH_STATE_H

#include "bpf/markers.bpf.h"

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, DP_MAX_TORCH_THREADS);
  __type(key, __u32);
  __type(value, struct dp_torch_thread);
} torch_threads SEC(".maps");

/* When a phase of torch last began or ended, by the low bits of the process's id; 0: not seen. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, DP_PHASE_EDGES);
  __type(key, __u32);
  __type(value, __u64);
} phase_edges SEC(".maps");

static __always_inline __u64* phase_edge_of(__u32 pid) {
  __u32 slot = pid & (DP_PHASE_EDGES - 1);
  return bpf_map_lookup_elem(&phase_edges, &slot);
}

/* PyDictObject.ma_keys, PyListObject.ob_item, PyASCIIObject.hash: 3.10-3.15. */
#define DP_DICT_KEYS 32
#define DP_LIST_ITEMS 24
#define DP_STR_HASH 24

/* The value of an entry. False: the dict is not what it was. */
static __always_inline bool read_entry(const struct dp_dict_entry* entry, __u64* value) {
  __u64 keys = 0;
  __u64 pair[2] = {};
  if (!read_user_u64(entry->dict + DP_DICT_KEYS, &keys) || keys != entry->keys) return false;
  if (!read_user_words(pair, sizeof(pair), entry->entry)) return false;
  if (pair[0] != entry->key || !pair[1]) return false;
  *value = pair[1];
  return true;
}

struct list_head {
  __u64 refcount;
  __u64 type;
  __u64 size;
  __u64 items;
};

static __always_inline __u8 read_open_context(const struct dp_process* process,
                                              const struct dp_torch_thread* thread,
                                              struct dp_torch_state* out) {
  struct object_head head;
  struct dp_marker marker = {.autograd_id = DP_NO_VALUE,
                             .frame_id = DP_NO_VALUE,
                             .compile_id = DP_NO_VALUE,
                             .attempt = DP_NO_VALUE};
  __u64 context = 0;
  if (!thread->context.entry) return DP_TORCH_READ; /* this thread never compiled */
  if (!read_entry(&thread->context, &context)) return DP_TORCH_STALE;
  if (context == process->none) return DP_TORCH_READ;
  if (!read_object(context, &head)) return DP_TORCH_FAULT;
  __u8 status = read_context(process, context, head.type, &marker);
  if (status == DP_MARKER_UNSET) return DP_TORCH_READ;
  if (status != DP_MARKER_OK) return DP_TORCH_FAULT;
  out->autograd_id = marker.autograd_id;
  out->frame_id = marker.frame_id;
  out->compile_id = marker.compile_id;
  out->attempt = marker.attempt;
  return DP_TORCH_READ;
}

/* The list of open phases; its head is all zero where the thread has none. */
static __always_inline __u8 read_phase_list(const struct dp_process* process,
                                            const struct dp_torch_thread* thread,
                                            struct list_head* list) {
  __u64 address = 0;
  __builtin_memset(list, 0, sizeof(*list));
  if (!thread->phases.entry) return DP_TORCH_READ;
  if (!read_entry(&thread->phases, &address)) return DP_TORCH_STALE;
  if (!read_user_words(list, sizeof(*list), address) || list->type != process->torch.list_type ||
      (list->size && !list->items)) {
    __builtin_memset(list, 0, sizeof(*list));
    return DP_TORCH_FAULT;
  }
  return DP_TORCH_READ;
}

/* CPU time of the current thread. */
static __always_inline __u64 thread_cpu_ns(void) {
  struct task_struct* task = (struct task_struct*)bpf_get_current_task();
  return BPF_CORE_READ(task, se.sum_exec_runtime);
}

/* Ids alone: three reads less. */
static __always_inline void read_torch_ids(const struct dp_process* process,
                                           const struct dp_torch_thread* thread,
                                           struct dp_torch_state* out) {
  __builtin_memset(out, 0, sizeof(*out));
  out->autograd_id = out->frame_id = out->compile_id = out->attempt = DP_NO_VALUE;
  out->status = read_open_context(process, thread, out);
  if (out->status != DP_TORCH_READ)
    count(out->status == DP_TORCH_STALE ? DP_COUNT_TORCH_STALE : DP_COUNT_TORCH_FAULT);
}

/* Ids and the number of open phases. */
static __always_inline void read_torch_state(const struct dp_process* process,
                                             const struct dp_torch_thread* thread,
                                             struct list_head* list, struct dp_torch_state* out) {
  __builtin_memset(out, 0, sizeof(*out));
  out->autograd_id = out->frame_id = out->compile_id = out->attempt = DP_NO_VALUE;
  out->status = read_open_context(process, thread, out);
  __u8 status = read_phase_list(process, thread, list);
  if (out->status == DP_TORCH_READ) out->status = status;
  if (out->status != DP_TORCH_READ)
    count(out->status == DP_TORCH_STALE ? DP_COUNT_TORCH_STALE : DP_COUNT_TORCH_FAULT);
  out->open_phases = (__u32)list->size;
}

/* PyASCIIObject: refcount, type, length, hash, state. */
struct str_head {
  __u64 refcount;
  __u64 type;
  __u64 length;
  __u64 hash;
  __u32 state;
  __u32 pad;
};

/* Copies a short ASCII str; 0: it is none. */
static __always_inline __u32 read_name(const struct dp_process* process, __u64 object, char* text,
                                       __u64 room) {
  struct str_head head;
  if (!object || !read_user_words(&head, sizeof(head), object)) return 0;
  __u32 compact_ascii = head.state >> (process->python.str_kind_shift & 31) >> 3 & 3;
  if (head.type != process->torch.str_type || compact_ascii != 3) return 0;
  __u64 size = head.length;
  if (size > room) size = room;
  if (bpf_probe_read_user(text, size & 0x7f, (const void*)(object + process->python.str_data)))
    return 0;
  return (__u32)size;
}

#endif
