/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Reads pages of another process that are present, without the lock of its memory map. process_vm_readv takes that lock
 * for reading: a thread of the target that maps or unmaps memory meanwhile waits for it, spins, and sleeps.
 *
 * Run by user space with BPF_PROG_RUN, attached to nothing, and so inside of an RCU read-side section: the task is not
 * freed once it was seen alive, nor are page tables (x86-64 gives them back by RCU wherever it may run as a guest). A
 * page may be given up while it is copied. Its entry is looked up again afterwards, and the task's memory map too: what
 * changed does not count as read. All loads are checked by the kernel. */
#include <linux/bpf.h>

#include "bpf/kernel_types.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "bpf/pids.bpf.h"
#include "bpf/remote_memory.h"
#include "bpf/user_memory.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Processes looked at for one. */
#define DP_TASKS_SEARCHED (1 << 18)

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, DP_REMOTE_REQUESTS);
  __uint(map_flags, BPF_F_MMAPABLE);
  __type(key, __u32);
  __type(value, struct dp_remote_request);
} remote_requests SEC(".maps");

static __always_inline struct dp_remote_request* request_of(struct bpf_raw_tracepoint_args* ctx) {
  __u32 index = (__u32)ctx->args[0];
  return bpf_map_lookup_elem(&remote_requests, &index);
}

struct search {
  struct task_struct* first;
  struct task_struct* at;
  __u32 pid;
  __u32 found;
};

static long look_at_task(__u32 i __attribute__((unused)), struct search* search) {
  struct task_struct* task = search->at;
  if (pid_of(task) == search->pid) {
    search->found = 1;
    return 1;
  }
  __u64 next = (__u64)BPF_CORE_READ(task, tasks.next);
  if (!next) return 1;
  search->at = (struct task_struct*)(next - bpf_core_field_offset(struct task_struct, tasks));
  return search->at == search->first;
}

/* 1: the request has the task of its pid now. */
SEC("raw_tp/sched_process_exec")
int find_task(struct bpf_raw_tracepoint_args* ctx) {
  struct dp_remote_request* request = request_of(ctx);
  if (!request) return 0;
  struct task_struct* current = (struct task_struct*)bpf_get_current_task();
  struct task_struct* leader = BPF_CORE_READ(current, group_leader);
  struct search search = {.first = leader, .at = leader, .pid = request->pid};
  bpf_loop(DP_TASKS_SEARCHED, look_at_task, &search, 0);
  if (!search.found) return 0;
  struct task_struct* task = search.at;
  request->task = (__u64)task;
  request->start_time = BPF_CORE_READ(task, start_time);
  return 1;
}

/* Where its outermost page table is; 0: the task is not that process any more, or has no memory. */
static __always_inline __u64 page_table_of(const struct dp_remote_request* request) {
  struct task_struct* task = (struct task_struct*)request->task;
  if (pid_of(task) != request->pid || BPF_CORE_READ(task, start_time) != request->start_time)
    return 0;
  return (__u64)BPF_CORE_READ(task, mm, pgd);
}

struct reading {
  struct dp_remote_request* request;
  __u64 page_table;
};

static long read_piece(__u32 i, struct reading* reading) {
  struct dp_remote_request* request = reading->request;
  if (i >= DP_REMOTE_PIECES) return 1;
  struct dp_remote_piece* piece = &request->pieces[i];
  __u64 inside = piece->address & (DP_PAGE_BYTES - 1);
  __u64 page = piece->address - inside;
  __u32 offset = piece->offset;
  __u32 size = piece->size;
  __u64 table;
  piece->done = 0;
  if (offset > DP_REMOTE_BYTES || size == 0 || size > DP_PAGE_BYTES) return 0;
  /* What follows in the kernel's map is somebody else's page. */
  if (inside + size > DP_PAGE_BYTES) return 0;
  __u64 mapped_at = walk_page_tables_at(reading->page_table, direct_map_base,
                                        direct_map_physical_mask, direct_map_levels, page, &table);
  if (!mapped_at) return 0;
  if (bpf_probe_read_kernel(&request->data[offset], size, (const void*)(mapped_at + inside)))
    return 0;
  if (walk_page_tables_at(reading->page_table, direct_map_base, direct_map_physical_mask,
                          direct_map_levels, page, &table) == mapped_at)
    piece->done = (__u16)size;
  return 0;
}

/* 1: each piece says whether it was read. 0: the process is another one, nothing was read. */
SEC("raw_tp/sched_process_exec")
int read_remote(struct bpf_raw_tracepoint_args* ctx) {
  struct dp_remote_request* request = request_of(ctx);
  if (!request || !direct_map_base) return 0;
  struct reading reading = {.request = request, .page_table = page_table_of(request)};
  if (!reading.page_table) return 0;
  bpf_loop(request->count, read_piece, &reading, 0);
  return page_table_of(request) == reading.page_table;
}
