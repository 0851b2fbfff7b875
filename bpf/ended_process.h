/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* A process between its exit and the moment its task_struct is freed. */
#ifndef DYNPROF_BPF_ENDED_PROCESS_H
#define DYNPROF_BPF_ENDED_PROCESS_H

#include <linux/types.h>

/* Linux 6.18 was seen to free about one process in 500 without running the program on sched_process_free, and
 * without counting a miss. The entry then stays until another process has the same task_struct; its tgid differs. */
struct dp_ended_process {
  __u32 pid;  /* in the pid namespace of user space */
  __u32 tgid; /* in the kernel's own */
};

#endif
