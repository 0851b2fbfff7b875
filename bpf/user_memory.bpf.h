/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Reads the memory of the current process.
 *
 * bpf_probe_read_user costs a call whatever it reads, and copies by a string instruction: on Zen 5 these
 * go byte by byte while a hardware watchpoint is armed (tests/bench/watchpoint_strings.c). Where the
 * kernel maps all of its memory (x86-64's direct map) a page is read there instead: the process's page
 * tables say which one it is, and what is found is kept for the walk. A page that is not there, or
 * anything unusual, is left to the helper.
 *
 * Only for programs that run with interrupts off: then page tables are not given back under us (RCU). A
 * page that another thread unmaps meanwhile may hold something else already: torn, as memory freed under
 * us always is. Loads are checked by the kernel (bpf_rdonly_cast, Linux 6.2): an address that is not
 * mapped reads as 0.
 *
 * Include order: kernel_types.h, <bpf/bpf_core_read.h>, <bpf/bpf_helpers.h>, this. */
#ifndef DYNPROF_BPF_USER_MEMORY_H
#define DYNPROF_BPF_USER_MEMORY_H

#include <stdbool.h>

#include "bpf/limits.h"

/* Any type of words will do: this one is in every x86-64 kernel. */
struct pt_regs___word {
  unsigned long r15;
} __attribute__((preserve_access_index));

#ifdef DP_NO_DIRECT_MAP
/* Nothing is read there. libbpf 1.1 looks for a function that the kernel lacks in all of its modules, for which
 * it needs CAP_SYS_ADMIN: objects that never call it, and those for older kernels, do not name it. */
static __always_inline __u64 load_word(__u64 address) {
  (void)address;
  return 0;
}
#else
extern void* bpf_rdonly_cast(const void* object, __u32 type) __ksym __weak;

/* A word of the kernel's memory. */
static __always_inline __u64 load_word(__u64 address) {
  struct pt_regs___word* word =
      bpf_rdonly_cast((const void*)address, bpf_core_type_id_kernel(struct pt_regs___word));
  __u64 value = word->r15;
  /* Not one instruction with a load of another kind: the verifier refuses that. */
  asm volatile("" : "+r"(value));
  return value;
}
#endif

/* Where the kernel maps physical address 0, as user space found it (user/kernel/direct_map.h); 0: not
 * known, nothing is read there. Then what is an address in a page-table entry, and how many levels page
 * tables have: 4 or 5. */
const volatile __u64 direct_map_base;
const volatile __u64 direct_map_physical_mask;
const volatile __u32 direct_map_levels;

#define DP_PTE_PRESENT 1ULL
#define DP_PTE_USER 4ULL
#define DP_PTE_LARGE 128ULL
#define DP_PAGE_SHIFT 12
#define DP_TABLE_BITS 9
#define DP_TABLE_MASK ((1ULL << DP_TABLE_BITS) - 1)

static __always_inline bool is_users(__u64 entry) {
  return (entry & (DP_PTE_PRESENT | DP_PTE_USER)) == (DP_PTE_PRESENT | DP_PTE_USER);
}

/* Where the kernel has the page that begins at `page` of the process whose outermost page table is at `at`; 0: not there,
 * or not the process's. `table`: the page table whose entry said so; 0: it is part of a large page. */
static __always_inline __u64 walk_page_tables_at(__u64 at, __u64 base, __u64 physical_mask,
                                                 __u32 levels, __u64 page, __u64* table) {
  __u32 shift = DP_PAGE_SHIFT + (levels - 1) * DP_TABLE_BITS;
  *table = 0;
  if (!at || page >> (shift + DP_TABLE_BITS - 1)) return 0;
  for (int level = 0; level < 5; level++) {
    __u64 entry = load_word(at + ((page >> shift) & DP_TABLE_MASK) * 8);
    __u64 inside = (1ULL << shift) - 1;
    if (!is_users(entry)) return 0;
    if (shift == DP_PAGE_SHIFT) {
      *table = at;
      return base + (entry & physical_mask);
    }
    if (entry & DP_PTE_LARGE) return base + (entry & physical_mask & ~inside) + (page & inside);
    at = base + (entry & physical_mask);
    shift -= DP_TABLE_BITS;
  }
  return 0;
}

/* The same of the current process. */
static __always_inline __u64 walk_page_tables(__u64 base, __u64 physical_mask, __u32 levels,
                                              __u64 page, __u64* table) {
  struct task_struct* task = bpf_get_current_task_btf();
  return walk_page_tables_at((__u64)task->mm->pgd, base, physical_mask, levels, page, table);
}

/* Pages found in this walk, or this switch, and innermost page tables. */
#define DP_KNOWN_PAGES 64
#define DP_KNOWN_TABLES 16
struct known_page {
  __u64 page;
  __u64 mapped_at; /* 0: left to the helper */
  __u64 walk;
};
struct known_table {
  __u64 region; /* what it is of, by number */
  __u64 at;
  __u64 walk;
};
struct known_pages {
  __u64 walk;
  struct known_page pages[DP_KNOWN_PAGES];
  struct known_table tables[DP_KNOWN_TABLES];
};
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct known_pages);
} known_pages SEC(".maps");

/* What was found before may not be true any more. */
static __always_inline void forget_pages(void) {
  __u32 zero = 0;
  if (!direct_map_base) return;
  struct known_pages* known = bpf_map_lookup_elem(&known_pages, &zero);
  if (known) known->walk++;
}

static __always_inline __u64 look_up_page(struct known_pages* known, __u64 page) {
  __u64 region = page >> (DP_PAGE_SHIFT + DP_TABLE_BITS);
  struct known_table* table = &known->tables[region & (DP_KNOWN_TABLES - 1)];
  if (table->region == region && table->walk == known->walk) {
    __u64 entry = load_word(table->at + ((page >> DP_PAGE_SHIFT) & DP_TABLE_MASK) * 8);
    return is_users(entry) ? direct_map_base + (entry & direct_map_physical_mask) : 0;
  }
  __u64 at = 0;
  __u64 mapped_at =
      walk_page_tables(direct_map_base, direct_map_physical_mask, direct_map_levels, page, &at);
  if (at) {
    table->region = region;
    table->at = at;
    table->walk = known->walk;
  }
  return mapped_at;
}

/* Where the kernel has a page of the current process; 0: the helper is to read it. */
__noinline __u64 find_page(__u64 page) {
  __u32 zero = 0;
  if (!direct_map_base) return 0;
  struct known_pages* known = bpf_map_lookup_elem(&known_pages, &zero);
  if (!known) return 0;
  struct known_page* way = &known->pages[(page >> DP_PAGE_SHIFT) & (DP_KNOWN_PAGES - 1)];
  if (way->page == page && way->walk == known->walk) return way->mapped_at;
  way->mapped_at = look_up_page(known, page);
  way->page = page;
  way->walk = known->walk;
  return way->mapped_at;
}

/* `size`: a multiple of 8 that is known when this is compiled. False: the memory is not readable. */
static __always_inline bool read_user_words(void* to, __u32 size, __u64 address) {
  __u64 at = address & (DP_PAGE_BYTES - 1);
  if (direct_map_base && at + size <= DP_PAGE_BYTES) {
    __u64 page = find_page(address - at);
    if (page) {
#pragma unroll
      for (__u32 i = 0; i < size / 8; i++) ((__u64*)to)[i] = load_word(page + at + 8 * i);
      return true;
    }
  }
  return bpf_probe_read_user(to, size, (const void*)address) == 0;
}

static __always_inline bool read_user_u64(__u64 address, __u64* value) {
  return read_user_words(value, sizeof(*value), address);
}

#endif
