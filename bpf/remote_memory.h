/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What user space and bpf/remote_memory.bpf.c tell each other: a request to read another process's memory. */
#ifndef DYNPROF_BPF_REMOTE_MEMORY_H
#define DYNPROF_BPF_REMOTE_MEMORY_H

#include <linux/types.h>

/* Requests at a time, one for each thread that reads; more threads read without it. */
#define DP_REMOTE_REQUESTS 4
#define DP_REMOTE_PIECES 256
#define DP_REMOTE_BYTES (128 * 1024)

/* A part of one page. */
struct dp_remote_piece {
  __u64 address;
  __u32 offset; /* of its first byte in `data` */
  __u16 size;
  __u16 done; /* out: `size`, or 0: it is not there, or was about to change */
};

struct dp_remote_request {
  __u64 task;       /* the process's first thread; set by find_task */
  __u64 start_time; /* of it; the task is another one when this differs */
  __u32 pid;        /* in the pid namespace of user space */
  __u32 count;      /* of pieces */
  struct dp_remote_piece pieces[DP_REMOTE_PIECES];
  __u8 data[DP_REMOTE_BYTES + 4096]; /* one page more, for the verifier */
};

#endif
