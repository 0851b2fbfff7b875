/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Finds where the kernel maps all memory. No interface reports it, so positions are tried until a known word is
 * read correctly. Run once by user space, attached to nothing. */
#include <linux/bpf.h>

#include "bpf/kernel_types.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "bpf/user_memory.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* In: of memory that is there, and what two of its words, pages apart, hold. */
__u64 address[2];
__u64 expected[2];
__u64 physical_mask;
__u64 first; /* how many GiB below the outermost page table's GiB to begin */
/* Out */
__u64 base; /* 0: not at these positions */
__u32 levels;

#define DP_GIB (1ULL << 30)
/* Of the kernel's half, with page tables of four levels and of five (Linux 4.14 to 6.18). */
#define DP_FOUR_LEVELS_FROM 0xffff800000000000ULL

__noinline int try_place(__u64 place) {
  for (int i = 0; i < 2; i++) {
    __u64 at = address[i] & (DP_PAGE_BYTES - 1);
    __u64 table;
    __u64 page = walk_page_tables(place, physical_mask, levels, address[i] - at, &table);
    if (!page || load_word(page + at) != expected[i]) return 0;
  }
  return 1;
}

SEC("raw_tp/sched_process_exec")
int find_direct_map(void* ctx __attribute__((unused))) {
  struct task_struct* task = (struct task_struct*)bpf_get_current_task();
  __u64 table = (__u64)BPF_CORE_READ(task, mm, pgd);
  base = 0;
  levels = table >= DP_FOUR_LEVELS_FROM ? 4 : 5;
  for (__u64 i = 0; i < DP_PLACES_TRIED; i++) {
    __u64 place = (table & ~(DP_GIB - 1)) - (first + i) * DP_GIB;
    if (!try_place(place)) continue;
    base = place;
    return 1;
  }
  return 0;
}
