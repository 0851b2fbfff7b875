/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What distinguishes one wait from another without walking its stack: the system call, the user stack and
 * instruction pointer, the innermost Python frames with their instructions, torch's open compile. A
 * read of the target's memory by the kernel's helper costs a call whatever its size, so reads are as few as
 * possible. */
#ifndef DYNPROF_BPF_WAIT_KEY_H
#define DYNPROF_BPF_WAIT_KEY_H

#include "bpf/mix.bpf.h"
#include "bpf/sample_parts.bpf.h"

/* Python frames that distinguish one wait from another. */
#define KEY_FRAMES 3
/* From 3.11 on a frame's caller mostly lies right below it: so much is read at once. */
#define FRAME_WINDOW_BYTES 512

/* Of a dp_python_layout, what is read of a frame here. */
struct frame_fields {
  __u16 base;
  __u16 code;
  __u16 previous;
  __u16 instr;
  __u16 instr_is_index;
  __u16 pad[3];
};

static __always_inline void set_fields(struct frame_fields* fields,
                                       const struct dp_python_layout* layout) {
  fields->base = layout->frame_base;
  fields->code = layout->frame_code;
  fields->previous = layout->frame_previous;
  fields->instr = layout->frame_instr;
  fields->instr_is_index = layout->instr_is_index;
}

/* Where a thread's top frame is kept, and which it was, with its instruction and caller. */
struct top_frame {
  __u64 kept_at; /* address of the word that points to it; 0: no Python here */
  __u64 hash;    /* 0: no frame */
};

static __always_inline __u64 hash_frame(__u64 frame, const __u8* bytes,
                                        const struct frame_fields* fields) {
  __u64 hash = mix(frame, field_u64(bytes, fields->code));
  hash = mix(hash, field_u64(bytes, fields->previous));
  return mix(hash, fields->instr_is_index ? field_u32(bytes, fields->instr)
                                          : field_u64(bytes, fields->instr));
}

/* Finds the top frame of the current thread, and where it is kept; 0: none. Where a call has only begun
 * it may be stale: then the key is another one, no more. `known` is the thread's state as last found,
 * and is checked. */
static __always_inline __u64 peek_top_frame(struct walk* walk, const struct dp_process* process,
                                            struct task_struct* task, __u64* known,
                                            __u64* kept_at) {
  const struct dp_python_layout* layout = &process->python;
  __u64 fsbase = task->thread.fsbase;
  __u64 tstate = *known, thread_id = 0, interpreter = 0, frame = 0, below = 0;
  *kept_at = 0;
  if (!(process->flags & DP_PROCESS_PYTHON) || !fsbase) return 0;
  if (!tstate || !read_thread_state(walk, layout, tstate, &thread_id, &interpreter, &frame) ||
      thread_id != fsbase) {
    *known = 0;
    if (!find_thread_state(process, fsbase, &tstate) || !tstate) return 0;
    if (!read_thread_state(walk, layout, tstate, &thread_id, &interpreter, &frame)) return 0;
    if (thread_id != fsbase) return 0;
    *known = tstate;
  }
  *kept_at = tstate + layout->tstate_frame;
  if (layout->cframe_frame == DP_NO_OFFSET || !frame) return frame;
  *kept_at = frame + layout->cframe_frame;
  return read_cframe(walk, layout, frame, &frame, &below) ? frame : 0;
}

/* Still the top frame, at the same instruction? The word that points to it is where it was as long as
 * the thread's stack pointer is. */
static __always_inline bool is_top_frame(struct walk* walk, const struct top_frame* top,
                                         const struct frame_fields* fields) {
  __u64 frame = 0;
  if (!top->kept_at) return true;
  if (!read_user_u64(top->kept_at, &frame)) return false;
  if (!frame) return !top->hash;
  if (!read_user_words(walk->frame_bytes, DP_FRAME_READ_BYTES, frame + fields->base)) return false;
  return hash_frame(frame, walk->frame_bytes, fields) == top->hash;
}

/* Which the top Python frames are, with their instructions; the first of them to `top`. */
static __always_inline __u64 mix_frames(struct walk* walk, const struct frame_fields* fields,
                                        __u64 frame, __u64 hash, __u64* top) {
  __u64 low = 0, high = 0;
  *top = 0;
  for (int i = 0; i < KEY_FRAMES && frame; i++) {
    __u64 at = frame + fields->base;
    if (at < low || at + DP_FRAME_READ_BYTES > high) {
      /* Not beyond the beginning of its page: what is there need not be mapped. */
      __u64 page = at & ~(__u64)(DP_PAGE_BYTES - 1);
      high = at + DP_FRAME_READ_BYTES;
      low = high - FRAME_WINDOW_BYTES;
      if (i || direct_map_base) low = at;
      if (low < page) low = page;
      __u64 size = high - low;
      asm volatile("" : "+r"(size)); /* for the verifier: bounded as it is */
      if (size > FRAME_WINDOW_BYTES) break;
      if (direct_map_base) {
        if (!read_user_words(walk->page_bytes, DP_FRAME_READ_BYTES, at)) break;
      } else if (bpf_probe_read_user(walk->page_bytes, size, (const void*)low)) {
        break;
      }
    }
    __u64 offset = at - low;
    asm volatile("" : "+r"(offset));
    if (offset > FRAME_WINDOW_BYTES) break;
    const __u8* bytes = (const __u8*)walk->page_bytes + offset;
    __u64 one = hash_frame(frame, bytes, fields);
    if (!i) *top = one;
    hash = mix(hash, one);
    frame = field_u64(bytes, fields->previous);
  }
  return hash;
}

/* The compile open on the thread: a remembered stack must not bring another one's. */
static __always_inline __u64 mix_torch(__u32 tid, __u64 hash) {
  struct dp_torch_thread* thread = bpf_map_lookup_elem(&torch_threads, &tid);
  __u64 context = 0;
  if (!thread || !thread->context.entry || !read_entry(&thread->context, &context)) return hash;
  return mix(hash, context);
}

/* st_mode of an open file of the current process, 0: not known. */
static __always_inline __u16 mode_of(__u32 fd) {
  struct task_struct* task = (struct task_struct*)bpf_get_current_task();
  struct fdtable* table = BPF_CORE_READ(task, files, fdt);
  struct file** files = 0;
  struct file* file = 0;
  __u32 most = 0;
  if (!table) return 0;
  most = BPF_CORE_READ(table, max_fds);
  files = BPF_CORE_READ(table, fd);
  if (fd >= most || bpf_probe_read_kernel(&file, sizeof(file), &files[fd]) || !file) return 0;
  return BPF_CORE_READ(file, f_inode, i_mode);
}

#endif
