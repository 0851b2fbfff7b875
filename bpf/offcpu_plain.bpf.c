/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Off-CPU time for kernels without bpf_rdonly_cast (before Linux 6.2). */
#define DP_NO_DIRECT_MAP

#include "bpf/offcpu.bpf.c"
