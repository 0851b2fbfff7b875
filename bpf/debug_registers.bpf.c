/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* For the tests: how often a thread that runs is found with a hardware watchpoint in a debug register. Not
 * part of the program.
 *
 * The kernel puts a thread's watchpoints into the debug registers while their perf events are active, and
 * keeps these on a list of the thread (Linux 6.2 and later: one list for all kinds of events). */
#include <linux/bpf.h>
#include <linux/bpf_perf_event.h>
#include <stdbool.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "GPL";

struct list_head {
  struct list_head* next;
} __attribute__((preserve_access_index));
struct perf_event_attr {
  __u32 type;
} __attribute__((preserve_access_index));
enum perf_event_state { PERF_EVENT_STATE_ACTIVE = 1 };
struct perf_event {
  struct list_head event_entry;
  enum perf_event_state state;
  struct perf_event_attr attr;
} __attribute__((preserve_access_index));
struct perf_event_context {
  struct list_head event_list;
} __attribute__((preserve_access_index));
struct task_struct {
  struct perf_event_context* perf_event_ctxp;
} __attribute__((preserve_access_index));

#define PERF_TYPE_BREAKPOINT 5 /* of linux/perf_event.h, whose types clash with these */
#define DP_EVENTS_LOOKED_AT 64

const volatile __u32 tid;
__u64 samples, armed;

SEC("perf_event")
int look_at_registers(struct bpf_perf_event_data* ctx __attribute__((unused))) {
  if ((__u32)bpf_get_current_pid_tgid() != tid) return 0;
  struct task_struct* task = (struct task_struct*)bpf_get_current_task();
  struct perf_event_context* events = BPF_CORE_READ(task, perf_event_ctxp);
  __sync_fetch_and_add(&samples, 1);
  if (!events) return 0;
  struct list_head* head = (void*)events + bpf_core_field_offset(events->event_list);
  struct list_head* at = BPF_CORE_READ(head, next);
  for (int i = 0; i < DP_EVENTS_LOOKED_AT && at && at != head; i++) {
    struct perf_event* event = (void*)at - bpf_core_field_offset(struct perf_event, event_entry);
    if (BPF_CORE_READ(event, attr.type) == PERF_TYPE_BREAKPOINT &&
        BPF_CORE_READ(event, state) == PERF_EVENT_STATE_ACTIVE) {
      __sync_fetch_and_add(&armed, 1);
      return 0;
    }
    at = BPF_CORE_READ(at, next);
  }
  return 0;
}
