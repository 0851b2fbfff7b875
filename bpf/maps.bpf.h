/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Maps that several BPF objects share: user space loads the first object and makes the others use its maps, by
 * name (bpf_map__reuse_fd). Include order: kernel_types.h, <bpf/bpf_core_read.h>,
 * <bpf/bpf_helpers.h>, this. */
#ifndef DYNPROF_BPF_MAPS_H
#define DYNPROF_BPF_MAPS_H

#include "bpf/events.h"
#include "bpf/pids.bpf.h"

/* Followed processes. Looked up on the sampling path, written by user space and, in process context,
 * by the fork, exec and exit tracepoints; never written while sampling. */
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, DP_MAX_PROCESSES);
  __type(key, __u32);
  __type(value, struct dp_process);
} processes SEC(".maps");

/* Variable-length events for user space; its size is set before load. */
struct {
  __uint(type, BPF_MAP_TYPE_RINGBUF);
  __uint(max_entries, 1 << 22);
} events SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, DP_COUNTER_COUNT);
  __type(key, __u32);
  __type(value, __u64);
} counters SEC(".maps");

static __always_inline void count(__u32 counter) {
  __u64* value = bpf_map_lookup_elem(&counters, &counter);
  if (value) *value += 1;
}

#endif
