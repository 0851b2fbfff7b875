/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What a walk of one thread's stack works on: the sample that is made, and what has been read for it. */
#ifndef DYNPROF_BPF_WALK_H
#define DYNPROF_BPF_WALK_H

#include "bpf/maps.bpf.h"

/* Fetched bytes are indexed by offsets that user space supplies; the mask proves the bound to the
 * verifier, the slack keeps an 8-byte load at the last masked offset inside. */
#define DP_FIELD_MASK 0x7f
#define DP_FETCH_BYTES (DP_FIELD_MASK + 1 + 8)

struct marker_note {
  __u64 frame;
  struct dp_marker_code marker;
  __u16 frame_index;
  __u16 pad;
};

/* Torch's reported state of the thread; sent behind the markers, the phases it has only. */
struct torch_sample {
  struct dp_torch_state state;
  struct dp_phase_name phases[DP_MAX_PHASES];
};

/* Where the native walk is; see unwind.bpf.h. */
struct native_walk {
  __u64 ip;
  __u64 sp;
  __u64 bp;
  __u64 r10, r13, rbx; /* in the interrupted frame only */
  __u64 key;           /* of the address space's content */
  __u32 mappings;
  __u32 at;   /* bytes behind `frames` where the next address goes */
  __u8 exact; /* ip is not a return address */
  __u8 innermost;
  __u8 bp_lost;
  __u8 pad[5];
};

/* State of one sample while it is taken; per CPU. */
struct walk {
  struct dp_process process;
  __u64 frame;  /* next frame to read, 0: done */
  __u64 caller; /* where the topmost eval-loop call must lead to; see check_top_call */
  __u32 check_caller;
  __u32 steps;         /* frames met, shims included */
  __u64 earlier_frame; /* a frame met before; see walks_in_a_circle */
  __u32 marker_notes;
  __u32 programs;   /* tail calls made */
  __u32 empty_call; /* DP_FRAME_EMPTY_CALL for the next frame */
  struct marker_note notes[DP_MAX_MARKERS];
  __u8 frame_bytes[DP_FETCH_BYTES] __attribute__((aligned(8)));
  __u8 code_bytes[DP_FETCH_BYTES];
  /* See bring_page. */
  __u64 page;      /* 0: none */
  __u64 last_page; /* asked for before */
  __u64 mapped_at;
  __u64 page_bytes[DP_PAGE_BYTES / 8];
  struct torch_sample torch;
  __u32 torch_bytes; /* of it, behind the markers */
  struct native_walk native;
  /* The event as it goes out: header, frames, then markers and torch's state (written behind the
   * last frame: these two only keep room for them). */
  struct dp_sample sample;
  struct dp_frame frames[DP_MAX_PYTHON_FRAMES];
  struct dp_marker markers[DP_MAX_MARKERS];
  struct torch_sample torch_room;
  __u64 native_room[DP_MAX_NATIVE_FRAMES + DP_MAX_KERNEL_FRAMES];
};
#define DP_MAX_SAMPLE_BYTES (sizeof(struct walk) - __builtin_offsetof(struct walk, sample))

static __always_inline void forget_page(struct walk* walk) {
  walk->page = 0;
  walk->last_page = 0;
  forget_pages();
}

/* Nothing is left of the walk before; `pid_tgid` as from current_ids(). */
static __always_inline void begin_walk(struct walk* walk, const struct dp_process* process,
                                       __u16 kind, __u64 pid_tgid, __u64 time_ns) {
  walk->process = *process;
  walk->frame = 0;
  walk->caller = 0;
  walk->check_caller = 0;
  walk->steps = 0;
  walk->earlier_frame = 0;
  forget_page(walk);
  walk->marker_notes = 0;
  walk->programs = 0;
  walk->empty_call = 0;
  walk->torch_bytes = 0;
  __builtin_memset(&walk->sample, 0, sizeof(walk->sample));
  walk->sample.header.kind = kind;
  walk->sample.header.cpu = bpf_get_smp_processor_id();
  walk->sample.header.time_ns = time_ns;
  walk->sample.header.pid = pid_tgid >> 32;
  walk->sample.header.tid = (__u32)pid_tgid;
}

/* Of the event, its variable parts included. */
static __always_inline __u32 sample_bytes(const struct walk* walk) {
  return sizeof(struct dp_sample) + walk->sample.frame_count * sizeof(struct dp_frame) +
         walk->sample.marker_count * sizeof(struct dp_marker) + walk->torch_bytes +
         (walk->sample.native_count + walk->sample.kernel_count) * sizeof(__u64);
}

static __always_inline __u64 field_u64(const __u8* bytes, __u16 offset) {
  return *(const __u64*)(bytes + (offset & DP_FIELD_MASK));
}
static __always_inline __u32 field_u32(const __u8* bytes, __u16 offset) {
  return *(const __u32*)(bytes + (offset & DP_FIELD_MASK));
}

#endif
