/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What the programs have in common that take a whole stack, markers and native frames included: the
 * walk of this CPU, the chain's places, and global functions, so that the verifier checks each once,
 * not once per marker or frame. */
#ifndef DYNPROF_BPF_SAMPLE_PARTS_H
#define DYNPROF_BPF_SAMPLE_PARTS_H

#include "bpf/torch_state.bpf.h"
#include "bpf/unwind.bpf.h"

/* Places in a chain's BPF_MAP_TYPE_PROG_ARRAY. */
#define TAIL_WALK 0
#define TAIL_MARKERS 1
#define TAIL_NATIVE 2

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct walk);
} walks SEC(".maps");

static __always_inline struct walk* current_walk(void) {
  __u32 zero = 0;
  return bpf_map_lookup_elem(&walks, &zero);
}

__noinline int read_marker_at(__u32 index) {
  struct walk* walk = current_walk();
  if (!walk || index >= DP_MAX_MARKERS) return 0;
  __u64 at = walk->sample.frame_count * sizeof(struct dp_frame) + index * sizeof(struct dp_marker);
  if (at > sizeof(walk->frames) + sizeof(walk->markers) - sizeof(struct dp_marker)) return 0;
  struct dp_marker marker;
  read_marker(walk, &walk->notes[index], &marker);
  /* Behind the frames, so that the event is contiguous. */
  __builtin_memcpy((__u8*)walk->frames + at, &marker, sizeof(marker));
  return 0;
}

/* Copies the names of the open phases: the str objects, each with its hash. */
static __always_inline __u32 read_phase_names(struct walk* walk, const struct list_head* list) {
  struct torch_sample* torch = &walk->torch;
  __u64 objects[DP_MAX_PHASES] = {};
  __u32 phases = list->size < DP_MAX_PHASES ? list->size : DP_MAX_PHASES;
  if (bpf_probe_read_user(objects, (phases & 31) * 8, (const void*)list->items)) phases = 0;
  for (__u32 i = 0; i < DP_MAX_PHASES; i++) {
    if (i >= phases) break;
    torch->phases[i].object = objects[i];
    if (!read_user_u64(objects[i] + DP_STR_HASH, &torch->phases[i].hash)) torch->phases[i].hash = 0;
  }
  return phases;
}

/* Source T; behind the markers. Returns its bytes, 0: this thread has none. */
__noinline __u32 append_torch_state(__u32 markers) {
  struct walk* walk = current_walk();
  if (!walk || markers > DP_MAX_MARKERS) return 0;
  __u32 tid = walk->sample.header.tid;
  struct dp_torch_thread* thread = bpf_map_lookup_elem(&torch_threads, &tid);
  if (!thread || thread->pid != walk->sample.header.pid) return 0;
  struct list_head list;
  struct torch_sample* torch = &walk->torch;
  read_torch_state(&walk->process, thread, &list, &torch->state);
  __u32 phases = 0;
  if (torch->state.status == DP_TORCH_READ && list.size) phases = read_phase_names(walk, &list);
  torch->state.phase_count = (__u8)phases;
  __u32 bytes = sizeof(torch->state) + phases * sizeof(struct dp_phase_name);
  __u32 frames = walk->sample.frame_count;
  if (frames > DP_MAX_PYTHON_FRAMES || bytes > sizeof(*torch)) return 0;
  __u64 at = frames * sizeof(struct dp_frame) + markers * sizeof(struct dp_marker);
  /* Whole words, all of it: what lies behind the end is not sent. */
  __u64* to = (__u64*)((__u8*)walk->frames + at);
  const __u64* from = (const __u64*)torch;
  for (int i = 0; i < (int)(sizeof(*torch) / 8); i++) to[i] = from[i];
  walk->sample.flags |= DP_SAMPLE_TORCH;
  return bytes;
}

/* Markers, then torch's own state, behind the frames. */
static __always_inline void read_markers_and_torch(struct walk* walk) {
  __u32 markers = walk->marker_notes;
  for (__u32 i = 0; i < DP_MAX_MARKERS && i < markers; i++) read_marker_at(i);
  walk->sample.marker_count = markers;
  walk->torch_bytes = append_torch_state(markers);
}

__noinline int unwind_frame(void) {
  struct walk* walk = current_walk();
  return walk ? unwind_step(walk) : 0;
}

#endif
