/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Counts of runs of compiled regions. They lie in memory that user space maps: the BPF programs add to
 * them, user space reads them. Plain C, fixed widths, explicit padding. */
#ifndef DYNPROF_BPF_RUN_COUNTS_H
#define DYNPROF_BPF_RUN_COUNTS_H

#include <linux/types.h>

#include "bpf/limits.h"
#include "bpf/targets.h"

/* What is counted: a region of a process, or the class of its backward's autograd nodes. Name and
 * code together, because each of them can come again for another region. */
struct dp_region_key {
  __u64 code;  /* address of the code object it runs; of a backward: of the class */
  __u32 pid;   /* 0: not filled in yet */
  __u32 probe; /* DP_PROBE_REGION_BEGIN or DP_PROBE_NODE_BEGIN */
  char name[DP_REGION_NAME_BYTES]; /* of a region, cut; filled up with 0 */
};
DP_ASSERT_SIZE(dp_region_key, 16 + DP_REGION_NAME_BYTES);

/* Numbers only grow. Times are in ns, of the clock CLOCK_MONOTONIC. */
struct dp_region_count {
  struct dp_region_key key;
  __u64 calls;
  __u64 timed;     /* runs whose begin and end were both seen */
  __u64 time_ns;   /* of those, from begin to end */
  __u64 nested_ns; /* of that, in other runs inside them */
  __u64 lookups;   /* runs for which torch's search for them was timed */
  __u64 lookup_ns; /* of those: cache lookup and guards */
};
DP_ASSERT_SIZE(dp_region_count, 64 + DP_REGION_NAME_BYTES);

#define DP_RUNS_NOT_SENT 1u    /* no events of runs */
#define DP_RUNS_NOT_COUNTED 2u /* nothing at all */
#define DP_RUNS_NOT_TIMED 4u   /* only that they begin */

/* How often a process hits the probes on runs, by their cookie. Two CPUs may count at once and lose a hit: it is a
 * rate. */
struct dp_run_rate {
  __u64 second;
  __u64 hits_second; /* since then, for DP_RUN_HITS_SECONDS */
  __u32 hits;        /* of the probes, in that time */
  __u32 runs;        /* that began in `second` */
  __u32 flags;       /* DP_RUNS_* */
  __u32 begins;      /* as `hits`, since lengths are not measured any more */
  __u32 hits_now;    /* as `hits`, in `second` */
  __u32 begins_now;
};
DP_ASSERT_SIZE(dp_run_rate, 40);

#endif
