/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Unwinds the native stack of the current thread without frame pointers: the mapping that holds an
 * address names a table, the table's row for it says where the caller's registers are. Tables and
 * mappings are made by user space (user/stacks/native_unwind.h), each in a map of its own. A table
 * never changes; mappings do, and their header then has another content number. Steps, not programs:
 * the caller owns the loop. What an address came to is kept per CPU, so that a frame seen before costs
 * no search. */
#ifndef DYNPROF_BPF_UNWIND_H
#define DYNPROF_BPF_UNWIND_H

#include "bpf/python.bpf.h"
#include "bpf/unwind_format.h"

struct unwind_rows {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(map_flags, BPF_F_INNER_MAP | BPF_F_MMAPABLE);
  __uint(max_entries, 1);
  __uint(key_size, sizeof(__u32));
  __uint(value_size, sizeof(struct dp_unwind_row));
};
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
  __uint(max_entries, DP_MAX_UNWIND_TABLES);
  __type(key, __u32);
  __array(values, struct unwind_rows);
} unwind_tables SEC(".maps");

struct native_mappings {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(map_flags, BPF_F_INNER_MAP | BPF_F_MMAPABLE);
  __uint(max_entries, 1);
  __uint(key_size, sizeof(__u32));
  __uint(value_size, sizeof(struct dp_native_mapping));
};
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
  __uint(max_entries, DP_MAX_NATIVE_SPACES);
  __type(key, __u32);
  __array(values, struct native_mappings);
} native_spaces SEC(".maps");

/* Rules found on this CPU. Direct-mapped: a collision costs a search, never a wrong answer. */
struct rule_cache_entry {
  __u64 pc;
  __u64 key; /* of the address space's content; 0: nothing here */
  __u32 rule;
  __u32 pad;
};
struct rule_cache {
  struct rule_cache_entry entries[DP_RULE_CACHE_SLOTS];
};
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1); /* one per possible CPU, set before load */
  __type(key, __u32);
  __type(value, struct rule_cache);
} rule_caches SEC(".maps");

/* The registers that user mode entered the kernel with. */
static __always_inline bool saved_user_registers(struct native_walk* native) {
  struct pt_regs regs;
  struct task_struct* task = bpf_get_current_task_btf();
  const void* saved = (const void*)bpf_task_pt_regs(task);
  if (!saved || bpf_probe_read_kernel(&regs, sizeof(regs), saved)) return false;
  native->ip = regs.rip;
  native->sp = regs.rsp;
  native->bp = regs.rbp;
  native->r10 = regs.r10;
  native->r13 = regs.r13;
  native->rbx = regs.rbx;
  return native->ip != 0 && !(native->ip >> 63);
}

/* The registers that user mode was interrupted with, or entered the kernel with. */
static __always_inline bool user_registers(struct bpf_perf_event_data* ctx,
                                           struct native_walk* native) {
  if (!(PT_REGS_IP(&ctx->regs) >> 63)) {
    native->ip = ctx->regs.rip;
    native->sp = ctx->regs.rsp;
    native->bp = ctx->regs.rbp;
    native->r10 = ctx->regs.r10;
    native->r13 = ctx->regs.r13;
    native->rbx = ctx->regs.rbx;
    return true;
  }
  return saved_user_registers(native);
}

/* Where addresses go: behind what the sample holds already. */
static __always_inline __u32 addresses_begin(const struct walk* walk) {
  return walk->sample.frame_count * sizeof(struct dp_frame) +
         walk->sample.marker_count * sizeof(struct dp_marker) + walk->torch_bytes;
}

#define DP_ADDRESS_ROOM \
  (sizeof(struct walk) - __builtin_offsetof(struct walk, frames)) /* bytes from `frames` on */

/* `ctx` null: from where user mode entered the kernel. */
static __always_inline bool begin_unwinding(struct bpf_perf_event_data* ctx, struct walk* walk) {
  struct native_walk* native = &walk->native;
  __u32 slot = walk->process.native_space;
  __u32 zero = 0;
  native->at = addresses_begin(walk);
  native->exact = 1;
  native->innermost = 1;
  native->bp_lost = 0;
  walk->sample.native_end = DP_COUNT_NATIVE_REGISTERS;
  if (!(ctx ? user_registers(ctx, native) : saved_user_registers(native))) return false;
  walk->sample.native_end = DP_COUNT_NATIVE_NO_TABLE;
  void* space = bpf_map_lookup_elem(&native_spaces, &slot);
  if (!space) return false;
  const struct dp_native_mapping* header = bpf_map_lookup_elem(space, &zero);
  if (!header || header->start != walk->process.native_owner) return false;
  native->key = *(volatile const __u64*)&header->bias;
  if (!native->key) return false; /* being written */
  native->mappings = (__u32)header->end;
  walk->sample.native_end = DP_COUNT_NATIVE_TOO_DEEP;
  return true;
}

/* The last mapping that begins at or below `pc`, if it holds it. */
static __always_inline const struct dp_native_mapping* find_mapping(void* space, __u32 mappings,
                                                                    __u64 pc) {
  __u32 low = 1, high = mappings + 1;
  for (int i = 0; i < DP_SPACE_SEARCH_STEPS && low < high; i++) {
    __u32 middle = low + (high - low) / 2;
    const struct dp_native_mapping* mapping = bpf_map_lookup_elem(space, &middle);
    if (!mapping) return 0;
    if (mapping->start <= pc)
      low = middle + 1;
    else
      high = middle;
  }
  low -= 1;
  if (!low) return 0;
  const struct dp_native_mapping* found = bpf_map_lookup_elem(space, &low);
  return found && pc >= found->start && pc < found->end ? found : 0;
}

/* The rule of the last row at or below `pc`: among the rows of its page and the one before them. */
static __always_inline __u32 find_row(void* table, __u32 rows, __u32 pc) {
  __u32 page = DP_UNWIND_HEADER_ROWS + rows + (pc >> DP_UNWIND_PAGE_SHIFT);
  const struct dp_unwind_page* part = bpf_map_lookup_elem(table, &page);
  if (!part) return DP_CFA_NONE;
  __u32 low = part->first, high = part->end;
  __u32 rule = DP_CFA_NONE;
  if (low > DP_UNWIND_HEADER_ROWS) low--;
  for (int i = 0; i < DP_UNWIND_PAGE_STEPS && low < high; i++) {
    __u32 middle = low + (high - low) / 2;
    const struct dp_unwind_row* row = bpf_map_lookup_elem(table, &middle);
    if (!row) return DP_CFA_NONE;
    if (row->pc <= pc) {
      rule = row->rule;
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return rule;
}

/* Searches for the rule of `pc`. Returns DP_COUNT_SAMPLES, or why there is none. */
static __always_inline __u32 search_rule(struct walk* walk, __u64 pc, __u32* rule) {
  __u32 slot = walk->process.native_space;
  __u32 first = 0, second = 1;
  void* space = bpf_map_lookup_elem(&native_spaces, &slot);
  if (!space) return DP_COUNT_NATIVE_NO_TABLE;
  const struct dp_native_mapping* mapping = find_mapping(space, walk->native.mappings, pc);
  if (!mapping) return DP_COUNT_NATIVE_NO_MAPPING;
  slot = mapping->table;
  if (!slot) return DP_COUNT_NATIVE_NO_TABLE;
  void* table = bpf_map_lookup_elem(&unwind_tables, &slot);
  if (!table) return DP_COUNT_NATIVE_NO_TABLE;
  const struct dp_unwind_row* header = bpf_map_lookup_elem(table, &first);
  const struct dp_unwind_row* base = bpf_map_lookup_elem(table, &second);
  if (!header || !base || header->rule != mapping->serial) return DP_COUNT_NATIVE_NO_TABLE;
  __u64 in_table = pc - mapping->bias - ((__u64)base->rule << 32 | base->pc);
  if (in_table >> 32) return DP_COUNT_NATIVE_NO_RULE;
  *rule = find_row(table, header->pc, (__u32)in_table);
  /* The mappings may have been written anew meanwhile. */
  const struct dp_native_mapping* now = bpf_map_lookup_elem(space, &first);
  if (!now || *(volatile const __u64*)&now->bias != walk->native.key)
    return DP_COUNT_NATIVE_NO_TABLE;
  return DP_COUNT_SAMPLES;
}

static __always_inline __u32 rule_for(struct walk* walk, __u64 pc, __u32* rule) {
  __u32 cpu = bpf_get_smp_processor_id();
  struct rule_cache* cache = bpf_map_lookup_elem(&rule_caches, &cpu);
  if (!cache) return DP_COUNT_NO_SCRATCH;
  __u64 key = walk->native.key;
  __u64 hash = (pc ^ key << 40) * 0x9e3779b97f4a7c15ULL;
  struct rule_cache_entry* entry = &cache->entries[(hash >> 40) & (DP_RULE_CACHE_SLOTS - 1)];
  if (entry->pc == pc && entry->key == key) {
    *rule = entry->rule;
    return DP_COUNT_SAMPLES;
  }
  __u32 end = search_rule(walk, pc, rule);
  if (end == DP_COUNT_SAMPLES) {
    entry->pc = pc;
    entry->key = key;
    entry->rule = *rule;
  }
  return end;
}

static __always_inline __u32 unsupported(__u32 rule) {
  switch (dp_unwind_argument(rule)) {
    case DP_UNWIND_BAD_PROGRAM:
    case DP_UNWIND_PROGRAM_LIMIT:
    case DP_UNWIND_BAD_CIE:
    case DP_UNWIND_TABLE_LIMIT:
      return DP_COUNT_NATIVE_DAMAGED;
    default:
      return DP_COUNT_NATIVE_UNUSUAL;
  }
}

/* The word at `address` of the stack. */
static __always_inline bool read_stack_u64(struct walk* walk, __u64 address, __u64* value) {
  __u64 page = address & ~(__u64)(DP_PAGE_BYTES - 1);
  if ((address & 7) || !bring_page(walk, page)) return read_user_u64(address, value);
  *value = page_word(walk, (address - page) / 8);
  return true;
}

/* The CFA of a frame. Returns DP_COUNT_SAMPLES, or why there is none. */
static __always_inline __u32 find_cfa(const struct native_walk* native, __u32 rule, __u64* cfa) {
  __u64 offset = (__u64)(__s64)dp_unwind_offset(rule);
  __u32 kind = dp_unwind_kind(rule);
  if ((kind == DP_CFA_RBP || kind == DP_CFA_DEREF_RBP) && native->bp_lost)
    return DP_COUNT_NATIVE_REGISTER_LOST;
  if (kind >= DP_CFA_R10 && kind <= DP_CFA_RBX && !native->innermost)
    return DP_COUNT_NATIVE_REGISTER_LOST;
  switch (kind) {
    case DP_CFA_NONE:
      return DP_COUNT_NATIVE_NO_RULE;
    case DP_CFA_RSP:
      *cfa = native->sp + offset;
      return DP_COUNT_SAMPLES;
    case DP_CFA_RBP:
      *cfa = native->bp + offset;
      return DP_COUNT_SAMPLES;
    case DP_CFA_DEREF_RBP:
      return read_user_u64(native->bp + offset, cfa) ? DP_COUNT_SAMPLES : DP_COUNT_NATIVE_FAULT;
    case DP_CFA_DEREF_RSP:
    case DP_CFA_DEREF_RSP_8:
      if (!read_user_u64(native->sp + offset, cfa)) return DP_COUNT_NATIVE_FAULT;
      if (kind == DP_CFA_DEREF_RSP_8) *cfa += 8;
      return DP_COUNT_SAMPLES;
    case DP_CFA_PLT:
      *cfa = native->sp + 8 + ((native->ip & 15) >= dp_unwind_argument(rule) ? 8 : 0);
      return DP_COUNT_SAMPLES;
    case DP_CFA_R10:
      *cfa = native->r10 + offset;
      return DP_COUNT_SAMPLES;
    case DP_CFA_R13:
      *cfa = native->r13 + offset;
      return DP_COUNT_SAMPLES;
    case DP_CFA_RBX:
      *cfa = native->rbx + offset;
      return DP_COUNT_SAMPLES;
    default:
      return unsupported(rule);
  }
}

/* Through a signal frame to what the signal interrupted. */
static __always_inline __u32 leave_signal(struct native_walk* native, __u32 rule) {
  __u64 saved = native->sp + (__u64)(__s64)dp_unwind_offset(rule);
  __u64 words[7]; /* rbp at -40, then rbx, rdx, rax, rcx, rsp and rip */
  if (!read_user_words(words, sizeof(words), saved - 40)) return DP_COUNT_NATIVE_FAULT;
  native->bp = words[0];
  native->sp = words[5];
  native->ip = words[6];
  native->bp_lost = 0;
  native->exact = 1;
  return DP_COUNT_SAMPLES;
}

/* To the caller. Returns DP_COUNT_SAMPLES, or why that is not possible. */
static __always_inline __u32 leave_frame(struct walk* walk, __u32 rule) {
  struct native_walk* native = &walk->native;
  __u64 cfa = 0, ip = 0;
  if (dp_unwind_kind(rule) == DP_CFA_SIGNAL) return leave_signal(native, rule);
  __u32 end = find_cfa(native, rule, &cfa);
  if (end != DP_COUNT_SAMPLES) return end;
  if (cfa <= native->sp) return DP_COUNT_NATIVE_FAULT;
  if (!read_stack_u64(walk, cfa - 8, &ip)) return DP_COUNT_NATIVE_FAULT;
  __u32 rbp = dp_unwind_rbp(rule);
  if (rbp == DP_RBP_LOST) {
    native->bp_lost = 1;
  } else if (rbp != DP_RBP_SAME) {
    __u64 from = dp_rbp_from_rbp(rbp) ? native->bp : cfa;
    bool lost = dp_rbp_from_rbp(rbp) && native->bp_lost;
    native->bp_lost =
        lost || !read_stack_u64(walk, from + (__u64)(__s64)dp_rbp_offset(rbp), &native->bp);
  }
  native->ip = ip;
  native->sp = cfa;
  native->exact = 0;
  return DP_COUNT_SAMPLES;
}

#define DP_MAX_PROBED_RETURNS 64

/* The return address that was at `slot` before a return probe of another program replaced it by the kernel's;
 * 0: none did. */
static __always_inline __u64 probed_return(__u64 slot) {
  struct task_struct* task = (struct task_struct*)bpf_get_current_task();
  if (!bpf_core_field_exists(task->utask)) return 0;
  struct return_instance* instance = BPF_CORE_READ(task, utask, return_instances);
  for (int i = 0; i < DP_MAX_PROBED_RETURNS && instance; i++) {
    if (BPF_CORE_READ(instance, stack) == slot) return BPF_CORE_READ(instance, orig_ret_vaddr);
    instance = BPF_CORE_READ(instance, next);
  }
  return 0;
}

/* Notes the frame and goes on to its caller. False when the walk is over, and native_end says why. */
static __always_inline bool unwind_step(struct walk* walk) {
  struct native_walk* native = &walk->native;
  __u32 rule = 0;
  __u32 at = native->at;
  if (at > DP_ADDRESS_ROOM - sizeof(__u64) * (DP_MAX_KERNEL_FRAMES + 1)) return false;
  *(__u64*)((__u8*)walk->frames + at) =
      (native->ip & ~DP_NATIVE_EXACT) | (native->exact ? DP_NATIVE_EXACT : 0);
  native->at = at + sizeof(__u64);
  walk->sample.native_count++;
  __u32 end = rule_for(walk, native->ip - (native->exact ? 0 : 1), &rule);
  if (end == DP_COUNT_SAMPLES) {
    if (dp_unwind_kind(rule) == DP_CFA_OUTERMOST) {
      walk->sample.native_end = DP_COUNT_SAMPLES;
      return false;
    }
    end = leave_frame(walk, rule);
  }
  if (end == DP_COUNT_NATIVE_NO_MAPPING && !native->exact) {
    __u64 address = probed_return(native->sp - 8);
    if (address && address != native->ip) {
      native->ip = address;
      native->at = at;
      walk->sample.native_count--;
      return true;
    }
  }
  native->innermost = 0;
  if (end == DP_COUNT_SAMPLES) return true;
  walk->sample.native_end = end;
  return false;
}

/* Behind the native addresses. */
static __always_inline void append_kernel_frames(void* ctx, struct walk* walk) {
  __u32 at = walk->native.at;
  if (!(walk->sample.flags & DP_SAMPLE_KERNEL)) return;
  if (at > DP_ADDRESS_ROOM - sizeof(__u64) * DP_MAX_KERNEL_FRAMES) return;
  long bytes =
      bpf_get_stack(ctx, (__u8*)walk->frames + at, sizeof(__u64) * DP_MAX_KERNEL_FRAMES, 0);
  if (bytes > 0) walk->sample.kernel_count = (__u16)(bytes / sizeof(__u64));
}

#endif
