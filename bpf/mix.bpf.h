/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Hashes of a few words, for keys that are compared and never leave the BPF programs. */
#ifndef DYNPROF_BPF_MIX_H
#define DYNPROF_BPF_MIX_H

static __always_inline __u64 mix(__u64 hash, __u64 value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15ULL;
  return hash ^ (hash >> 29);
}

#endif
