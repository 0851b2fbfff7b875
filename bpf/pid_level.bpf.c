/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* How many pid namespaces are around the one of the thread that runs this. /proc does not show it: in a
 * container it shows only the container's own namespace. Run once by user space, attached to nothing. */
#include <linux/bpf.h>

#include "bpf/kernel_types.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("raw_tp/sched_process_exec")
int find_pid_level(void* ctx __attribute__((unused))) {
  struct task_struct* task = (struct task_struct*)bpf_get_current_task();
  return (int)BPF_CORE_READ(task, thread_pid, level);
}
