/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Reads the locals of torch's marker frames: which compile is this, which attempt of it (source F of
 * the attribution). The thread is interrupted while we read, so what its own frames refer to cannot
 * be freed; types are verified all the same, at every object. */
#ifndef DYNPROF_BPF_MARKERS_H
#define DYNPROF_BPF_MARKERS_H

#include "bpf/python.bpf.h"

struct object_head {
  __u64 refcount;
  __u64 type;
  __u64 word; /* cell: contents; int: size and sign */
  __u32 digit;
  __u32 pad;
};

static __always_inline bool read_object(__u64 address, struct object_head* head) {
  return address && read_user_words(head, sizeof(*head), address);
}

/* Follows a path from an object to an attribute's value; 0 if there is none. */
static __always_inline __u64 follow(__u64 object, const struct dp_path* path) {
  __u64 value = object;
  if (!object || path->steps == 0) return 0;
  for (int i = 0; i < DP_MAX_PATH_STEPS; i++) {
    if (i >= path->steps) break;
    __u64 from = value & ~7ULL;
    if (!from || !read_user_u64(from + path->offset[i], &value)) return 0;
  }
  return value;
}

/* A small non-negative int; DP_NO_VALUE for None or anything else, with *bad set for the latter. */
static __always_inline __s32 read_int(const struct dp_process* process, __u64 object, bool* bad) {
  struct object_head head;
  if (object && object == process->none) return DP_NO_VALUE;
  if (!read_object(object, &head) || (process->long_type && head.type != process->long_type)) {
    *bad = true;
    return DP_NO_VALUE;
  }
  __u8 shift = process->python.long_tag_shift & 7;
  bool negative = shift ? (head.word & 3) == 2 : (__s64)head.word < 0;
  __u64 digits = shift ? head.word >> shift : head.word;
  if (shift && (head.word & 3) == 1) return 0; /* 3.12+: zero is a sign of its own */
  if (negative || digits > 1 || head.digit > 0x3fffffff) {
    *bad = true;
    return DP_NO_VALUE;
  }
  return digits ? (__s32)head.digit : 0;
}

/* The object a local refers to, through a cell if it is one; 0: not set. */
static __always_inline __u64 read_local(const struct dp_process* process, __u64 frame, __u16 slot,
                                        __u64* type) {
  __u64 object = 0;
  struct object_head head;
  if (!read_user_u64(frame + process->python.frame_localsplus + 8ULL * slot, &object)) return 0;
  object &= ~(__u64)process->python.code_tag_mask;
  if (!read_object(object, &head)) return 0;
  if (head.type == process->cell_type) {
    object = head.word;
    if (!read_object(object, &head)) return 0;
  }
  *type = head.type;
  return object;
}

static __always_inline __u8 read_compile_id(const struct dp_process* process, __u64 object,
                                            __u64 type, struct dp_marker* out) {
  const struct dp_torch_layout* torch = &process->torch;
  bool bad = false;
  if (!(process->flags & DP_PROCESS_TORCH) || type != torch->compile_id_type)
    return DP_MARKER_WRONG_TYPE;
  if (torch->id_autograd.steps) /* torch 2.6 has no such field */
    out->autograd_id = read_int(process, follow(object, &torch->id_autograd), &bad);
  out->frame_id = read_int(process, follow(object, &torch->id_frame), &bad);
  out->compile_id = read_int(process, follow(object, &torch->id_compile), &bad);
  return bad ? DP_MARKER_FAULT_READ : DP_MARKER_OK;
}

static __always_inline __u8 read_context(const struct dp_process* process, __u64 object, __u64 type,
                                         struct dp_marker* out) {
  const struct dp_torch_layout* torch = &process->torch;
  struct object_head head;
  bool bad = false;
  if (!(process->flags & DP_PROCESS_TORCH) || type != torch->compile_context_type)
    return DP_MARKER_WRONG_TYPE;
  __u64 id = follow(object, &torch->context_id);
  __u64 attempt = 0;
  if (id &&
      (id == process->none || (read_object(id, &head) && head.type == torch->compile_id_type))) {
    attempt = follow(object, &torch->context_attempt);
  } else {
    /* The instance has a dictionary of its own: then the first path ends in something else. */
    id = follow(object, &torch->context_id_dict);
    attempt = follow(object, &torch->context_attempt_dict);
  }
  if (id && id == process->none) return DP_MARKER_UNSET;
  if (!read_object(id, &head)) return DP_MARKER_FAULT_READ;
  __u8 status = read_compile_id(process, id, head.type, out);
  if (status == DP_MARKER_OK && attempt) out->attempt = read_int(process, attempt, &bad);
  return bad ? DP_MARKER_FAULT_READ : status;
}

/* Fills one marker from its frame. */
static __always_inline void read_marker(struct walk* walk, const struct marker_note* note,
                                        struct dp_marker* out) {
  const struct dp_process* process = &walk->process;
  __u64 type = 0;
  __builtin_memset(out, 0, sizeof(*out));
  out->instance = note->frame;
  out->frame_index = note->frame_index;
  out->kind = note->marker.kind;
  out->autograd_id = out->frame_id = out->compile_id = out->attempt = DP_NO_VALUE;
  __u64 object = read_local(process, note->frame, note->marker.slot, &type);
  if (!object || object == process->none) {
    out->status = DP_MARKER_UNSET;
    return;
  }
  bool bad = false;
  switch (note->marker.kind) {
    case DP_MARKER_COMPILE:
      out->status = read_compile_id(process, object, type, out);
      if (note->marker.code_slot != DP_NO_OFFSET) {
        __u32 identity = 0;
        __u64 code = read_local(process, note->frame, note->marker.code_slot, &type);
        if (code && read_identity(walk, code, &identity)) {
          out->user_code = code;
          out->user_code_identity = identity;
        }
      }
      break;
    case DP_MARKER_ATTEMPT:
      out->attempt = read_int(process, object, &bad);
      out->status = bad ? DP_MARKER_WRONG_TYPE : DP_MARKER_OK;
      break;
    case DP_MARKER_BACKWARD:
      out->status = read_context(process, object, type, out);
      break;
    default:
      out->status = DP_MARKER_WRONG_TYPE;
  }
  if (out->status == DP_MARKER_FAULT_READ) count(DP_COUNT_MARKER_FAULT);
  if (out->status == DP_MARKER_WRONG_TYPE) count(DP_COUNT_MARKER_BAD_TYPE);
}

#endif
