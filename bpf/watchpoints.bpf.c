/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Hardware watchpoints: one on the length of each compiling thread's list of open phases, so that
 * every phase torch begins and ends is seen, to the microsecond. The debug exception runs this in
 * the thread itself, after the write. */
#include <linux/bpf.h>
#include <linux/bpf_perf_event.h>
#include <stdbool.h>

#include "bpf/kernel_types.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "bpf/torch_state.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct phase_scratch {
  struct dp_process process;
  struct dp_phase_event event;
};
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct phase_scratch);
} phase_scratch SEC(".maps");

SEC("perf_event")
int phases_changed(struct bpf_perf_event_data* ctx __attribute__((unused))) {
  __u64 pid_tgid = bpf_get_current_pid_tgid();
  __u32 pid = pid_tgid >> 32;
  __u32 tid = (__u32)pid_tgid;
  __u32 zero = 0;
  struct dp_process* process = bpf_map_lookup_elem(&processes, &pid);
  struct dp_torch_thread* thread = bpf_map_lookup_elem(&torch_threads, &tid);
  struct phase_scratch* scratch = bpf_map_lookup_elem(&phase_scratch, &zero);
  if (!process || !thread || !scratch || thread->pid != pid) return 0;
  struct dp_phase_event* event = &scratch->event;
  struct list_head list;
  __builtin_memset(event, 0, sizeof(*event));
  event->header.size = sizeof(*event);
  event->header.kind = DP_EVENT_PHASE;
  event->header.cpu = bpf_get_smp_processor_id();
  event->header.time_ns = bpf_ktime_get_ns();
  event->header.pid = pid;
  event->header.tid = tid;
  read_torch_state(process, thread, &list, &event->torch);
  event->cpu_ns = thread_cpu_ns();
  event->before = thread->depth;
  event->depth = (__u32)list.size;
  if (event->torch.status == DP_TORCH_READ && list.items) {
    __u64 item = event->depth > event->before ? list.size - 2 : list.size;
    if (item < DP_MAX_OPEN_PHASES)
      event->name_size = read_phase_name(process, &list, item, event->name, sizeof(event->name));
  }
  thread->depth = event->depth;
  if (bpf_ringbuf_output(&events, event, sizeof(*event), BPF_RB_NO_WAKEUP))
    count(DP_COUNT_RING_FULL);
  return 0;
}
