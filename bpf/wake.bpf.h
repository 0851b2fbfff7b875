/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Flags of bpf_ringbuf_output. Include after <bpf/bpf_helpers.h>. */
#ifndef DYNPROF_BPF_WAKE_H
#define DYNPROF_BPF_WAKE_H

/* User space polls, and is woken where more than this waits. */
static __always_inline __u64 wake_above(void* ring, __u64 bytes) {
  return bpf_ringbuf_query(ring, BPF_RB_AVAIL_DATA) > bytes ? BPF_RB_FORCE_WAKEUP
                                                            : BPF_RB_NO_WAKEUP;
}

#endif
