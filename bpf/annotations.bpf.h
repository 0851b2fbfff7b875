/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Ranges that a program marks in itself:
 *
 *   torch::autograd::profiler::record_function_enter_new(name, args)  torch.profiler.record_function begins
 *   at::RecordFunction::RecordFunction(scope)                         ... its object is made, by that function
 *   at::RecordFunction::end()                                         ... it ends, by its object
 *   torch::profiler::itt_range_push(const char*), itt_range_pop()     torch.profiler.itt
 *   nvtxRangePushA(const char*), nvtxRangePop()                       torch.cuda.nvtx
 *   nvtxRangeStartA(const char*), nvtxRangeEnd(id)                    ... and for ranges that end anywhere
 *   nvtxRangePushEx(attributes), nvtxRangeStartEx(attributes)
 *   nvtxDomainRangePushEx(domain, attributes), nvtxDomainRangePop(domain)
 *   nvtxDomainRangeStartEx(domain, attributes), nvtxDomainRangeEnd(domain, id)
 *
 * torch makes and ends such objects for other purposes too, so these three are probed only on request.
 *
 * Entries only, as everywhere. An event for each begin and end; a process that marks more of them than
 * DP_ANNOTATION_HITS_PER_SECOND sends one more, and none from then on. */
#ifndef DYNPROF_BPF_ANNOTATIONS_BPF_H
#define DYNPROF_BPF_ANNOTATIONS_BPF_H

struct dp_run_rate annotation_rates[DP_CLOCK_SLOTS]; /* by the probes' cookie */
#define DP_ANNOTATIONS_GIVEN_UP 1u                   /* their flag: nothing is sent any more */

/* The record_functions that a thread has open. */
struct thread_records {
  __u32 pid;
  __u32 depth;
  __u64 name;     /* of one that begins and has no object yet: a std::string; 0: there is none */
  __u64 begin_ns; /* of that */
  __u64 objects[DP_OPEN_RECORDS];
};

/* By thread. Least recently used ones make room: nothing shows that a thread has ended. */
struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, DP_MAX_RUN_THREADS);
  __type(key, __u32);
  __type(value, struct thread_records);
} thread_records SEC(".maps");

static const struct thread_records no_records;

struct annotation_probe {
  struct dp_run_rate* rate;
  __u64 pid_tgid;
  __u64 now_ns;
  __u16 kind;
};

static __always_inline void fill_annotation(struct dp_annotation_event* event,
                                            const struct annotation_probe* probe, __u16 edge) {
  __builtin_memset(event, 0, sizeof(*event));
  begin_header(&event->header, DP_EVENT_ANNOTATION, sizeof(*event), probe->pid_tgid, probe->now_ns);
  event->kind = probe->kind;
  event->edge = edge;
}

static __always_inline void send_annotation(struct dp_annotation_event* event, __u64 flags) {
  if (bpf_ringbuf_output(&events, event, sizeof(*event), flags)) count(DP_COUNT_RING_FULL);
}

/* False: not a process we follow, or it marks too many. `event` is scratch memory. */
static __always_inline bool marks(struct annotation_probe* probe, struct dp_annotation_event* event,
                                  struct pt_regs* ctx) {
  __u64 cookie = bpf_get_attach_cookie(ctx);
  __u32 slot = (__u32)cookie;
  if (slot >= DP_CLOCK_SLOTS) return false;
  probe->kind = (__u16)(cookie >> 32);
  probe->rate = &annotation_rates[bounded(slot, DP_CLOCK_SLOTS)];
  if (probe->rate->flags & DP_ANNOTATIONS_GIVEN_UP) return false;
  probe->now_ns = bpf_ktime_get_ns();
  probe->pid_tgid = current_ids();
  __u32 pid = probe->pid_tgid >> 32;
  if (!bpf_map_lookup_elem(&processes, &pid)) return false;
  __u64 second = probe->now_ns / 1000000000;
  if (probe->rate->second != second) {
    probe->rate->second = second;
    probe->rate->hits = 0;
  }
  if (++probe->rate->hits <= DP_ANNOTATION_HITS_PER_SECOND) return true;
  if (set_first(probe->rate, DP_ANNOTATIONS_GIVEN_UP)) {
    fill_annotation(event, probe, DP_ANNOTATION_TOO_OFTEN);
    send_annotation(event, BPF_RB_FORCE_WAKEUP);
  }
  return false;
}

static __always_inline void read_annotation_name(struct dp_annotation_event* event, __u64 text) {
  long size = bpf_probe_read_user_str(event->name, sizeof(event->name), (const void*)text);
  if (size > 1) event->name_size = (__u16)(size - 1);
}

SEC("uprobe")
int range_pushed(struct pt_regs* ctx) {
  struct annotation_probe probe;
  struct dp_annotation_event event;
  if (!marks(&probe, &event, ctx)) return 0;
  fill_annotation(&event, &probe, DP_ANNOTATION_BEGIN);
  read_annotation_name(&event, PT_REGS_PARM1(ctx));
  send_annotation(&event, BPF_RB_NO_WAKEUP);
  return 0;
}

SEC("uprobe")
int range_popped(struct pt_regs* ctx) {
  struct annotation_probe probe;
  struct dp_annotation_event event;
  if (!marks(&probe, &event, ctx)) return 0;
  fill_annotation(&event, &probe, DP_ANNOTATION_END);
  send_annotation(&event, BPF_RB_NO_WAKEUP);
  return 0;
}

/* nvtxEventAttributes_t, of which versions 1 and 2 differ behind these. */
struct nvtx_message {
  __u32 type; /* 1: char*, 2: wchar_t*, 3: a registered string */
  __u32 pad;
  __u64 text;
};
#define NVTX_MESSAGE_OFFSET 32
#define NVTX_MESSAGE_ASCII 1

static __always_inline int begins_with(struct pt_regs* ctx, __u64 domain, __u64 attributes) {
  struct annotation_probe probe;
  struct dp_annotation_event event;
  struct nvtx_message message = {};
  if (!marks(&probe, &event, ctx)) return 0;
  fill_annotation(&event, &probe, DP_ANNOTATION_BEGIN);
  event.id = domain;
  const void* at = (const void*)(attributes + NVTX_MESSAGE_OFFSET);
  if (bpf_probe_read_user(&message, sizeof(message), at) == 0 && message.type == NVTX_MESSAGE_ASCII)
    read_annotation_name(&event, message.text);
  send_annotation(&event, BPF_RB_NO_WAKEUP);
  return 0;
}

SEC("uprobe")
int attributes_pushed(struct pt_regs* ctx) { return begins_with(ctx, 0, PT_REGS_PARM1(ctx)); }

SEC("uprobe")
int domain_pushed(struct pt_regs* ctx) {
  return begins_with(ctx, PT_REGS_PARM1(ctx), PT_REGS_PARM2(ctx));
}

SEC("uprobe")
int domain_popped(struct pt_regs* ctx) {
  struct annotation_probe probe;
  struct dp_annotation_event event;
  if (!marks(&probe, &event, ctx)) return 0;
  fill_annotation(&event, &probe, DP_ANNOTATION_END);
  event.id = PT_REGS_PARM1(ctx);
  send_annotation(&event, BPF_RB_NO_WAKEUP);
  return 0;
}

/* Null: the table is full of threads that are in use. */
static __always_inline struct thread_records* records_of(const struct annotation_probe* probe) {
  __u32 tid = (__u32)probe->pid_tgid;
  __u32 pid = probe->pid_tgid >> 32;
  struct thread_records* thread = bpf_map_lookup_elem(&thread_records, &tid);
  if (!thread) {
    bpf_map_update_elem(&thread_records, &tid, &no_records, BPF_NOEXIST);
    thread = bpf_map_lookup_elem(&thread_records, &tid);
    if (!thread) return 0;
  }
  if (thread->pid != pid) {
    thread->pid = pid;
    thread->depth = 0;
    thread->name = 0;
  }
  return thread;
}

SEC("uprobe")
int record_entered(struct pt_regs* ctx) {
  struct annotation_probe probe;
  struct dp_annotation_event event;
  if (!marks(&probe, &event, ctx)) return 0;
  struct thread_records* thread = records_of(&probe);
  if (!thread) return 0;
  thread->name = PT_REGS_PARM2(ctx); /* the first argument is where the result goes */
  thread->begin_ns = probe.now_ns;
  return 0;
}

SEC("uprobe")
int record_made(struct pt_regs* ctx) {
  struct annotation_probe probe;
  struct dp_annotation_event event;
  __u64 text = 0;
  if (!marks(&probe, &event, ctx)) return 0;
  struct thread_records* thread = records_of(&probe);
  if (!thread || !thread->name) return 0;
  __u32 depth = thread->depth;
  if (depth < DP_OPEN_RECORDS) {
    thread->objects[bounded(depth, DP_OPEN_RECORDS)] = PT_REGS_PARM1(ctx);
    thread->depth = depth + 1;
    probe.now_ns = thread->begin_ns;
    fill_annotation(&event, &probe, DP_ANNOTATION_BEGIN);
    event.id = PT_REGS_PARM1(ctx);
    if (read_user_u64(thread->name, &text)) read_annotation_name(&event, text);
    send_annotation(&event, BPF_RB_NO_WAKEUP);
  }
  thread->name = 0;
  return 0;
}

/* The destructor of an object calls it once more. */
SEC("uprobe")
int record_ended(struct pt_regs* ctx) {
  struct annotation_probe probe;
  struct dp_annotation_event event;
  if (!marks(&probe, &event, ctx)) return 0;
  __u32 tid = (__u32)probe.pid_tgid;
  struct thread_records* thread = bpf_map_lookup_elem(&thread_records, &tid);
  if (!thread || thread->pid != probe.pid_tgid >> 32) return 0;
  __u32 depth = thread->depth;
  for (__u32 i = 0; i < DP_OPEN_RECORDS; i++) {
    if (depth == 0 || depth > DP_OPEN_RECORDS) return 0;
    depth--;
    if (thread->objects[bounded(depth, DP_OPEN_RECORDS)] == PT_REGS_PARM1(ctx)) break;
    if (i + 1 == DP_OPEN_RECORDS) return 0;
  }
  if (thread->objects[bounded(depth, DP_OPEN_RECORDS)] != PT_REGS_PARM1(ctx)) return 0;
  thread->depth = depth;
  fill_annotation(&event, &probe, DP_ANNOTATION_END);
  event.id = PT_REGS_PARM1(ctx);
  send_annotation(&event, BPF_RB_NO_WAKEUP);
  return 0;
}

#endif
