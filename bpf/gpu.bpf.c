/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* GPU work as libdynprof_cupti.so reports it (cupti/wire.h), by uprobes on its USDT probes, and calls into
 * CUDA, by uprobes on CUDA itself. The programs read arguments from fixed registers; user space checks in the
 * notes of the library that they are there, and attaches to no other build.
 *
 * A launch brings the Python stack of its thread, walked as in sampler.bpf.c, or the number of one that was sent before
 * (launch_memo.bpf.h). Unlike a sample a probe runs in process context and may be preempted, so its scratch is claimed,
 * not just per CPU. */
#define DP_NO_DIRECT_MAP /* it runs with interrupts on */

#include <linux/bpf.h>
#include <linux/bpf_perf_event.h>
#include <stdbool.h>

#include "bpf/kernel_types.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "bpf/gpu_events.h"
#include "bpf/launch_memo.bpf.h"
#include "bpf/torch_state.bpf.h"
#include "bpf/wake.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Wake user space at once when this much waits; set before load. */
const volatile __u64 gpu_wakeup_bytes = 1 << 20;

struct {
  __uint(type, BPF_MAP_TYPE_RINGBUF);
  __uint(max_entries, 1 << 22); /* set before load */
} gpu_events SEC(".maps");

/* One stack being walked. `owner` is the thread that has claimed it; 0: none. */
struct launch {
  __u32 owner;
  __u32 pad;
  __u64 address; /* as DP_SAMPLE_GPU_ADDRESS; 0: not known */
  __u64 handle;  /* as DP_SAMPLE_GPU_HANDLE, where there is an address; 0: not known */
  __u64 number;  /* of the stack; 0: it has none */
  struct walk walk;
};
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, DP_GPU_LAUNCH_SLOTS);
  __type(key, __u32);
  __type(value, struct launch);
} launches SEC(".maps");

int walk_launch(struct pt_regs* ctx);

struct {
  __uint(type, BPF_MAP_TYPE_PROG_ARRAY);
  __uint(max_entries, 1);
  __uint(key_size, sizeof(__u32));
  __array(values, int(void*));
} gpu_tails SEC(".maps") = {.values = {[0] = (void*)&walk_launch}};

static __always_inline __u64 wake_flags(void) { return wake_above(&gpu_events, gpu_wakeup_bytes); }

static __always_inline void count_many(__u32 counter, __u64 many) {
  __u64* value = bpf_map_lookup_elem(&counters, &counter);
  if (value) *value += many;
}

/* ---- launches --------------------------------------------------------------------------------- */

static __always_inline struct launch* claim(__u32 tid) {
  for (__u32 i = 0; i < DP_GPU_LAUNCH_SLOTS; i++) {
    __u32 key = i;
    struct launch* slot = bpf_map_lookup_elem(&launches, &key);
    if (slot && __sync_val_compare_and_swap(&slot->owner, 0, tid) == 0) return slot;
  }
  return 0;
}

/* After a tail call: programs of one hit stay on one CPU. */
static __always_inline struct launch* claimed(__u32 tid) {
  for (__u32 i = 0; i < DP_GPU_LAUNCH_SLOTS; i++) {
    __u32 key = i;
    struct launch* slot = bpf_map_lookup_elem(&launches, &key);
    if (slot && slot->owner == tid) return slot;
  }
  return 0;
}

/* Torch's reported state of the thread, behind the frames; then the address, the handle and the number of the stack.
 * Returns their bytes. */
static __always_inline __u32 append_tail(struct launch* launch) {
  struct walk* walk = &launch->walk;
  __u32 tid = walk->sample.header.tid;
  struct dp_torch_thread* thread = bpf_map_lookup_elem(&torch_threads, &tid);
  __u32 frames = walk->sample.frame_count;
  if (frames > DP_MAX_PYTHON_FRAMES) return 0; /* for the verifier */
  __u64* to = (__u64*)((__u8*)walk->frames + frames * sizeof(struct dp_frame));
  __u32 bytes = 0;
  bool sent_before = launch->number && !frames;
  if (thread && thread->pid == walk->sample.header.pid && !sent_before) {
    read_torch_ids(&walk->process, thread, &walk->torch.state);
    const __u64* from = (const __u64*)&walk->torch.state;
    for (int i = 0; i < (int)(sizeof(walk->torch.state) / 8); i++) to[i] = from[i];
    walk->sample.flags |= DP_SAMPLE_TORCH;
    bytes = sizeof(walk->torch.state);
  }
  if (bytes) to += sizeof(walk->torch.state) / 8;
  if (launch->address) {
    *to++ = launch->address;
    bytes += 8;
    walk->sample.native_count++;
    walk->sample.flags |= DP_SAMPLE_GPU_ADDRESS;
    if (launch->handle) {
      *to++ = launch->handle;
      bytes += 8;
      walk->sample.native_count++;
      walk->sample.flags |= DP_SAMPLE_GPU_HANDLE;
    }
  }
  if (launch->number) {
    *to = launch->number;
    bytes += 8;
    walk->sample.native_count++;
    walk->sample.flags |= DP_SAMPLE_GPU_STACK_NUMBER;
  }
  return bytes;
}

/* False: it could not be sent. */
static __always_inline bool send_launch(struct launch* launch) {
  struct walk* walk = &launch->walk;
  __u32 tail_bytes = append_tail(launch);
  __u32 frames = walk->sample.frame_count;
  bool sent = false;
  if (frames <= DP_MAX_PYTHON_FRAMES && tail_bytes <= sizeof(struct dp_torch_state) + 24) {
    __u32 size = sizeof(struct dp_sample) + frames * sizeof(struct dp_frame) + tail_bytes;
    walk->sample.header.size = size;
    __u64 flags = wake_flags();
    asm volatile("" : "+r"(size)); /* as in sampler.bpf.c */
    sent = size <= DP_MAX_SAMPLE_BYTES &&
           bpf_ringbuf_output(&gpu_events, &walk->sample, size, flags) == 0;
    if (!sent) count(DP_COUNT_GPU_LAUNCH_LOST);
  }
  return sent;
}

static __always_inline void give_back(struct launch* launch) {
  __sync_lock_test_and_set(&launch->owner, 0);
}

SEC("uprobe")
int walk_launch(struct pt_regs* ctx) {
  struct launch* launch = claimed((__u32)current_ids());
  if (!launch) return 0;
  struct walk* walk = &launch->walk;
  bool more = true;
  for (int i = 0; i < DP_FRAMES_PER_PROGRAM && more; i++) more = walk_frame(walk);
  if (more && walk->frame) {
    walk->programs++;
    if (walk->programs < DP_WALK_PROGRAMS) bpf_tail_call(ctx, &gpu_tails, 0);
    walk->sample.flags |= DP_SAMPLE_TRUNCATED;
    count(DP_COUNT_TRUNCATED);
  }
  struct launch_place place = {};
  find_place(walk, hash_frames(walk), &place);
  bool known = is_known(&place, walk->sample.header.pid);
  if (known) {
    walk->sample.frame_count = 0;
  } else {
    identify_frames(walk);
    if (place.site) give_number(&place);
  }
  if (place.site) launch->number = place_number(&place, walk->sample.header.tid);
  bool sent = send_launch(launch);
  /* Not while user space has to read a code object: it may be gone soon. */
  if (place.site && !known && sent && !(walk->sample.flags & DP_SAMPLE_NEW_CODE))
    remember_place(&place);
  give_back(launch);
  return 0;
}

/* What a probe on CUDA read; 0: it is not known. */
struct called {
  __u64 address, handle;
};

static __always_inline int begin_launch(struct pt_regs* ctx, __u64 correlation, __u64 call,
                                        __u64 start_ns, __u16 flags, const struct called* called) {
  __u64 pid_tgid = current_ids();
  __u32 pid = pid_tgid >> 32;
  __u32 tid = (__u32)pid_tgid;
  struct dp_process* process = bpf_map_lookup_elem(&processes, &pid);
  if (!process) return 0;
  struct launch* launch = claim(tid);
  if (!launch) {
    count(DP_COUNT_GPU_LAUNCH_LOST);
    return 0;
  }
  struct walk* walk = &launch->walk;
  launch->address = called->address;
  launch->handle = called->handle;
  launch->number = 0;
  begin_walk(walk, process, DP_EVENT_GPU_LAUNCH, pid_tgid, start_ns);
  walk->sample.gpu_call = call << 32 | (__u32)correlation;
  walk->sample.flags = flags;
  walk->sample.reason = find_top_frame(walk);
  if (walk->sample.reason == DP_COUNT_SAMPLES) bpf_tail_call(ctx, &gpu_tails, 0);
  send_launch(launch);
  give_back(launch);
  return 0;
}

/* gpu_launch and gpu_launch_sampled(edi correlation, esi call, rdx start_ns, ecx flags) */
SEC("uprobe")
int gpu_launched(struct pt_regs* ctx) {
  __u16 flags = PT_REGS_PARM4(ctx) & DYNPROF_GPU_CALL_NESTED ? DP_SAMPLE_GPU_NESTED : 0;
  const struct called nothing = {};
  return begin_launch(ctx, PT_REGS_PARM1(ctx), (__u32)PT_REGS_PARM2(ctx), PT_REGS_PARM3(ctx), flags,
                      &nothing);
}

/* What the link's cookie names. The probe is where the stack pointer is still that of the call. */
static __always_inline struct called wanted_of(struct pt_regs* ctx, __u64 cookie) {
  struct called called = {};
  __u64 which = cookie >> 32 & 3;
  __u64 first = PT_REGS_PARM1(ctx), second = PT_REGS_PARM2(ctx), sp = PT_REGS_SP(ctx);
  asm volatile(""
               : "+r"(first), "+r"(second), "+r"(sp)); /* not one load from a chosen place of ctx */
  if (which == DP_GPU_COOKIE_CALLER >> 32) {
    bpf_probe_read_user(&called.address, sizeof(called.address), (const void*)sp);
    called.handle = cookie & DP_GPU_COOKIE_SECOND ? second : first;
  } else {
    called.address = which == 1 ? first : which == 2 ? second : 0;
  }
  return called;
}

/* A call into CUDA, without the library; which one is the link's cookie. */
SEC("uprobe")
int gpu_called(struct pt_regs* ctx) {
  __u64 cookie = bpf_get_attach_cookie(ctx);
  const struct called called = wanted_of(ctx, cookie);
  return begin_launch(ctx, PT_REGS_SP(ctx), (__u32)cookie, bpf_ktime_get_ns(), DP_SAMPLE_GPU_BARE,
                      &called);
}

/* A launch by the runtime whose call into the driver is probed too: only what that one cannot see. */
SEC("uprobe")
int gpu_stub_called(struct pt_regs* ctx) {
  __u64 pid_tgid = current_ids();
  __u32 pid = pid_tgid >> 32;
  if (!bpf_map_lookup_elem(&processes, &pid)) return 0;
  struct dp_gpu_stub event = {};
  event.header.size = sizeof(event);
  event.header.kind = DP_EVENT_GPU_STUB;
  event.header.cpu = bpf_get_smp_processor_id();
  event.header.time_ns = bpf_ktime_get_ns();
  event.header.pid = pid;
  event.header.tid = (__u32)pid_tgid;
  event.function = wanted_of(ctx, bpf_get_attach_cookie(ctx)).address;
  event.sp = PT_REGS_SP(ctx);
  if (bpf_ringbuf_output(&gpu_events, &event, sizeof(event), wake_flags()))
    count(DP_COUNT_GPU_NAME_LOST);
  return 0;
}

/* ---- what the library's own thread sends ------------------------------------------------------- */

static __always_inline void fill_header(struct dp_event_header* header, __u16 kind, __u32 size) {
  __u64 pid_tgid = current_ids();
  header->size = size;
  header->kind = kind;
  header->cpu = bpf_get_smp_processor_id();
  header->time_ns = bpf_ktime_get_ns();
  header->pid = pid_tgid >> 32;
  header->tid = (__u32)pid_tgid;
}

/* `bytes` of the target's in an event with room for `room`, a constant: there is no scratch that
 * another process could use meanwhile. False: lost. */
static __always_inline bool send_copy(__u16 kind, __u32 id, __u64 from, __u32 bytes, __u32 room) {
  struct dp_gpu_bytes* event = bpf_ringbuf_reserve(&gpu_events, sizeof(*event) + room, 0);
  if (!event) return false;
  fill_header(&event->header, kind, sizeof(*event) + room);
  event->id = id;
  event->bytes = bytes;
  asm volatile("" : "+r"(bytes));
  if (bytes > room || bpf_probe_read_user(event + 1, bytes, (const void*)from)) {
    bpf_ringbuf_discard(event, BPF_RB_NO_WAKEUP);
    return false;
  }
  bpf_ringbuf_submit(event, wake_flags());
  return true;
}

/* gpu_batch(rdi records, esi count) */
SEC("uprobe")
int gpu_batched(struct pt_regs* ctx) {
  __u64 from = PT_REGS_PARM1(ctx);
  __u32 count = (__u32)PT_REGS_PARM2(ctx);
  bool sent = false;
  if (count <= 4) {
    sent = send_copy(DP_EVENT_GPU_BATCH, 0, from, count * DYNPROF_GPU_RECORD_BYTES, 4 * 128);
  } else if (count <= 24) {
    sent = send_copy(DP_EVENT_GPU_BATCH, 0, from, count * DYNPROF_GPU_RECORD_BYTES, 24 * 128);
  } else if (count <= DYNPROF_GPU_MAX_BATCH) {
    sent = send_copy(DP_EVENT_GPU_BATCH, 0, from, count * DYNPROF_GPU_RECORD_BYTES,
                     DYNPROF_GPU_MAX_BATCH * DYNPROF_GPU_RECORD_BYTES);
  }
  if (!sent) count_many(DP_COUNT_GPU_RECORD_LOST, count);
  return 0;
}

/* gpu_name(edi id, rsi text, edx length) */
SEC("uprobe")
int gpu_named(struct pt_regs* ctx) {
  __u32 id = (__u32)PT_REGS_PARM1(ctx);
  __u64 from = PT_REGS_PARM2(ctx);
  __u32 length = (__u32)PT_REGS_PARM3(ctx);
  bool sent = length <= 96    ? send_copy(DP_EVENT_GPU_NAME, id, from, length, 96)
              : length <= 480 ? send_copy(DP_EVENT_GPU_NAME, id, from, length, 480)
                              : send_copy(DP_EVENT_GPU_NAME, id, from, length, 4096);
  if (!sent) count(DP_COUNT_GPU_NAME_LOST);
  return 0;
}

/* gpu_status(eax code, edx detail, rdi status, ecx bytes): the code and the detail are in it too. */
SEC("uprobe")
int gpu_status_changed(struct pt_regs* ctx) {
  struct dp_gpu_status* event = bpf_ringbuf_reserve(&gpu_events, sizeof(*event), 0);
  if (!event) return 0; /* another one comes within a second */
  fill_header(&event->header, DP_EVENT_GPU_STATUS, sizeof(*event));
  if (bpf_probe_read_user(&event->status, sizeof(event->status), (const void*)PT_REGS_PARM1(ctx))) {
    bpf_ringbuf_discard(event, BPF_RB_NO_WAKEUP);
    return 0;
  }
  bpf_ringbuf_submit(event, BPF_RB_FORCE_WAKEUP);
  return 0;
}
