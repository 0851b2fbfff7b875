/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Walks the interpreter frames of the current thread: fs base -> thread state -> top frame ->
 * previous frame ... -> root. Steps, not programs: the caller owns the loop over tail calls.
 *
 * Per frame two pieces of fixed size: of the frame (code object, previous, instruction) and of the
 * code object, what identifies it. Offsets come from struct dp_python_layout. Everything read is
 * the target's and may be torn or freed: a failed read or a circle ends the walk and is counted. */
#ifndef DYNPROF_BPF_PYTHON_H
#define DYNPROF_BPF_PYTHON_H

#include "bpf/maps.bpf.h"
#include "bpf/user_memory.bpf.h"
#include "bpf/walk.bpf.h"

/* Code objects this CPU has already put into a sample, so that known_codes is asked only once per
 * code object and generation. Direct-mapped: a collision costs a look-up, never a wrong answer. */
struct code_cache_entry {
  __u64 code;
  __u32 identity;
  __u32 pid;
  __u32 generation;
  struct dp_marker_code marker; /* kind 0: not a marker */
};

/* Where frames of the last samples were, what they ran: frames lie next to each other, while code objects are
 * all over the heap and so are their entries. No markers; direct-mapped by the frame's address. */
struct frame_code {
  __u64 code;
  __u32 identity;
  __u32 pid;
  __u32 generation;
  __u32 pad;
};
struct code_cache {
  struct code_cache_entry entries[DP_CODE_CACHE_SLOTS];
  struct frame_code frames[DP_FRAME_CODE_SLOTS];
};

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1); /* one per possible CPU, set before load */
  __type(key, __u32);
  __type(value, struct code_cache);
} code_caches SEC(".maps");

/* User space alone inserts. Allocated as a whole, some 6 MB: before Linux 6.1 programs of perf events may
 * use no other hash. */
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, DP_MAX_KNOWN_CODES);
  __type(key, struct dp_marker_key);
  __type(value, struct dp_marker_code);
} known_codes SEC(".maps");

/* Raised by user space after it made a marker of a code object this side may have cached. */
volatile __u32 marker_generation;

/* Frames of a stack lie close to one another, Python's (from 3.11 on, in a few pages of the thread's data
 * stack) and native ones: makes page_word() know the page at `page`. Where pages cannot be read in
 * place, the second one wanted of a page copies all of it: one read instead of some twenty. A page that
 * holds a frame is mapped, and what is in it cannot change while its thread is interrupted. */
static __always_inline bool bring_page(struct walk* walk, __u64 page) {
  bool again = page == walk->last_page;
  walk->last_page = page;
  if (!page) return false;
  if (page == walk->page) return true;
  if (direct_map_base) {
    __u64 mapped_at = find_page(page);
    if (!mapped_at) return false;
    walk->mapped_at = mapped_at;
  } else {
    if (!again) return false;
    walk->page = 0;
    if (bpf_probe_read_user(walk->page_bytes, DP_PAGE_BYTES, (const void*)page)) return false;
  }
  walk->page = page;
  return true;
}

/* Of the page that was brought. */
static __always_inline __u64 page_word(const struct walk* walk, __u64 word) {
  if (direct_map_base) return load_word(walk->mapped_at + 8 * word);
  return walk->page_bytes[word & (DP_PAGE_BYTES / 8 - 1)];
}

/* Fetches the part of a frame that the walk needs into frame_bytes. Frames of generators lie in the
 * heap and are read one by one. */
static __always_inline bool fetch_frame(struct walk* walk, __u64 address) {
  __u64 page = address & ~(__u64)(DP_PAGE_BYTES - 1);
  __u64 at = address - page;
  if (at <= DP_PAGE_BYTES - DP_FRAME_READ_BYTES && (at & 7) == 0 && bring_page(walk, page)) {
    __u64* to = (__u64*)walk->frame_bytes;
#pragma unroll
    for (int i = 0; i < DP_FRAME_READ_BYTES / 8; i++) to[i] = page_word(walk, at / 8 + i);
    return true;
  }
  return read_user_words(walk->frame_bytes, DP_FRAME_READ_BYTES, address);
}

/* The PyThreadState of the thread whose fs base this is; 0: it has none. False: not readable. */
static __always_inline bool find_thread_state(const struct dp_process* process, __u64 fsbase,
                                              __u64* tstate) {
  if (!read_user_u64(fsbase + process->tstate_offset, tstate)) return false;
  if (*tstate || !process->tstate_other) return true;
  return read_user_u64(fsbase + process->tstate_other, tstate);
}

/* A read by the helper takes as long whatever its size, so what lies together is read together, into
 * page_bytes, which no walk has begun to use. */
#define DP_THREAD_STATE_BYTES 512
#define DP_CFRAME_BYTES 64

static __always_inline bool read_thread_state(struct walk* walk,
                                              const struct dp_python_layout* layout, __u64 tstate,
                                              __u64* thread_id, __u64* interpreter, __u64* frame) {
  const __u8* bytes = (const __u8*)walk->page_bytes;
  __u64 id_at = layout->tstate_thread_id, interpreter_at = layout->tstate_interp,
        frame_at = layout->tstate_frame;
  __u64 size = id_at > interpreter_at ? id_at : interpreter_at;
  if (frame_at > size) size = frame_at;
  size += 8;
  if (direct_map_base || size > DP_THREAD_STATE_BYTES)
    return read_user_u64(tstate + id_at, thread_id) &&
           read_user_u64(tstate + interpreter_at, interpreter) &&
           read_user_u64(tstate + frame_at, frame);
  if (bpf_probe_read_user(walk->page_bytes, size, (const void*)tstate)) return false;
  *thread_id = *(const __u64*)(bytes + (id_at & (DP_THREAD_STATE_BYTES - 1)));
  *interpreter = *(const __u64*)(bytes + (interpreter_at & (DP_THREAD_STATE_BYTES - 1)));
  *frame = *(const __u64*)(bytes + (frame_at & (DP_THREAD_STATE_BYTES - 1)));
  return true;
}

static __always_inline bool read_cframe(struct walk* walk, const struct dp_python_layout* layout,
                                        __u64 cframe, __u64* frame, __u64* below) {
  const __u8* bytes = (const __u8*)walk->page_bytes;
  __u64 frame_at = layout->cframe_frame, below_at = layout->cframe_previous;
  __u64 size = (frame_at > below_at ? frame_at : below_at) + 8;
  if (direct_map_base || size > DP_CFRAME_BYTES)
    return read_user_u64(cframe + frame_at, frame) && read_user_u64(cframe + below_at, below);
  if (bpf_probe_read_user(walk->page_bytes, size, (const void*)cframe)) return false;
  *frame = *(const __u64*)(bytes + (frame_at & (DP_CFRAME_BYTES - 1)));
  *below = *(const __u64*)(bytes + (below_at & (DP_CFRAME_BYTES - 1)));
  return true;
}

/* Finds the top frame of the current thread. Returns DP_COUNT_SAMPLES, or the counter that says why
 * there is no Python stack. */
static __always_inline __u32 find_top_frame(struct walk* walk) {
  const struct dp_process* process = &walk->process;
  const struct dp_python_layout* layout = &process->python;
  if (!(process->flags & DP_PROCESS_PYTHON)) return DP_COUNT_NOT_PYTHON;

  struct task_struct* task = (struct task_struct*)bpf_get_current_task();
  __u64 fsbase = BPF_CORE_READ(task, thread.fsbase);
  __u64 tstate = 0, thread_id = 0, interpreter = 0, frame = 0;
  if (!fsbase) return DP_COUNT_NO_THREAD_STATE;
  if (!find_thread_state(process, fsbase, &tstate)) return DP_COUNT_THREAD_STATE_FAULT;
  if (!tstate) return DP_COUNT_NO_THREAD_STATE;
  if (!read_thread_state(walk, layout, tstate, &thread_id, &interpreter, &frame))
    return DP_COUNT_THREAD_STATE_FAULT;
  if (thread_id != fsbase) return DP_COUNT_THREAD_STATE_STALE;
  if (layout->cframe_frame != DP_NO_OFFSET && frame) {
    __u64 below = 0;
    if (!read_cframe(walk, layout, frame, &frame, &below)) return DP_COUNT_THREAD_STATE_FAULT;
    if (below && read_user_u64(below + layout->cframe_frame, &walk->caller)) {
      walk->check_caller = 1;
      if (!frame) {
        frame = walk->caller;
        walk->check_caller = 0;
      }
    }
  }
  if (interpreter != process->main_interpreter) {
    walk->sample.flags |= DP_SAMPLE_SUBINTERPRETER;
    count(DP_COUNT_SUBINTERPRETER);
  }
  if (!frame) return DP_COUNT_NO_FRAME;
  walk->frame = frame;
  return DP_COUNT_SAMPLES;
}

/* Reads the part of a code object that identifies it. False if it is not readable. */
static __always_inline bool read_identity(struct walk* walk, __u64 code, __u32* identity) {
  const struct dp_python_layout* layout = &walk->process.python;
  if (!read_user_words(walk->code_bytes, DP_CODE_READ_BYTES, code + layout->code_base))
    return false;
  const __u8* bytes = walk->code_bytes;
  __u64 qualname =
      layout->code_qualname == DP_NO_OFFSET ? 0 : field_u64(bytes, layout->code_qualname);
  __u32 version = layout->code_version == DP_NO_OFFSET ? 0 : field_u32(bytes, layout->code_version);
  *identity = dp_code_identity(
      field_u32(bytes, layout->code_firstlineno), version, field_u64(bytes, layout->code_filename),
      field_u64(bytes, layout->code_name), qualname, field_u64(bytes, layout->code_linetable));
  return true;
}

/* Where the frames of the walk of this CPU are; beside it, since a per-CPU value is 32 KiB at most. */
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, DP_MAX_PYTHON_FRAMES);
  __type(key, __u32);
  __type(value, __u64);
} frame_addresses SEC(".maps");

static __always_inline void note_frame(__u32 index, __u64 frame) {
  __u64* at = bpf_map_lookup_elem(&frame_addresses, &index);
  if (at) *at = frame;
}

static __always_inline __u64 noted_frame(__u32 index) {
  const __u64* at = bpf_map_lookup_elem(&frame_addresses, &index);
  return at ? *at : 0;
}

/* Is this code object a marker? Fills the CPU's cache entry; sets NEW_CODE while user space has not
 * read it. */
static __always_inline void announce_code(struct walk* walk, struct code_cache* cache, __u32 index,
                                          __u64 code, __u32 identity) {
  __u32 pid = walk->sample.header.pid;
  __u64 frame = noted_frame(index);
  struct frame_code* here =
      &cache->frames[(frame >> DP_FRAME_CODE_SHIFT) & (DP_FRAME_CODE_SLOTS - 1)];
  if (here->code == code && here->identity == identity && here->pid == pid &&
      here->generation == marker_generation)
    return;
  __u32 slot = (identity ^ (__u32)(code >> 4) ^ (pid * 0x9e3779b1u)) & (DP_CODE_CACHE_SLOTS - 1);
  struct code_cache_entry* entry = &cache->entries[slot];
  if (entry->code != code || entry->identity != identity || entry->pid != pid ||
      entry->generation != marker_generation) {
    struct dp_marker_key key = {.code = code, .pid = pid};
    struct dp_marker_code* known = bpf_map_lookup_elem(&known_codes, &key);
    entry->code = code;
    entry->identity = identity;
    entry->pid = pid;
    entry->generation = marker_generation;
    if (known && known->identity == identity) {
      entry->marker = *known;
    } else {
      walk->sample.flags |= DP_SAMPLE_NEW_CODE;
      entry->marker.kind = DP_MARKER_NONE;
    }
  }
  if (entry->marker.kind == DP_MARKER_NONE) {
    if (walk->sample.flags & DP_SAMPLE_NEW_CODE) return;
    here->code = code;
    here->identity = identity;
    here->pid = pid;
    here->generation = entry->generation;
    return;
  }
  __u32 n = walk->marker_notes;
  if (n >= DP_MAX_MARKERS) {
    walk->sample.flags |= DP_SAMPLE_MARKERS_CUT;
    count(DP_COUNT_MARKERS_FULL);
    return;
  }
  walk->notes[n].frame = frame;
  walk->notes[n].marker = entry->marker;
  walk->notes[n].frame_index = (__u16)index;
  walk->marker_notes = n + 1;
}

/* Says which code object a frame of the stack runs. Apart from the walk: so the verifier checks it once, not
 * once per frame. */
__noinline int identify_frame(struct walk* walk, __u32 index) {
  __u32 cpu = bpf_get_smp_processor_id();
  struct code_cache* cache = bpf_map_lookup_elem(&code_caches, &cpu);
  if (!walk || index >= DP_MAX_PYTHON_FRAMES) return 0;
  struct dp_frame* frame = &walk->frames[index];
  __u32 identity = 0;
  if (cache && read_identity(walk, frame->code, &identity)) {
    announce_code(walk, cache, index, frame->code, identity);
  } else {
    frame->unit |= DP_FRAME_CODE_FAULT;
    count(DP_COUNT_CODE_FAULT);
  }
  frame->identity = identity;
  return 0;
}

static __always_inline void identify_frames(struct walk* walk) {
  __u32 frames = walk->sample.frame_count;
  for (__u32 i = 0; i < DP_MAX_PYTHON_FRAMES && i < frames; i++) identify_frame(walk, i);
}

/* 3.11 and 3.12: the eval loop publishes its cframe before it stores its first frame there, so for a
 * moment the top frame is whatever an earlier call left on the C stack; and a generator that returns
 * is cut off from its caller while it still is the top frame. In both cases the frames of the
 * topmost eval-loop call do not lead to the top frame of the call below: they are dropped
 * and the walk begins again from there. True if so. */
static __always_inline bool restart_from_caller(struct walk* walk) {
  if (!walk->check_caller) return false;
  walk->check_caller = 0;
  walk->frame = walk->caller;
  walk->steps = 0;
  walk->earlier_frame = 0;
  walk->sample.frame_count = 0;
  walk->empty_call = DP_FRAME_EMPTY_CALL;
  walk->sample.flags &= ~DP_SAMPLE_FRAME_FAULT;
  count(DP_COUNT_CALL_BEGINNING);
  return true;
}

/* `previous` is what lies below the last frame of an eval-loop call. */
static __always_inline bool check_top_call(struct walk* walk, __u64 previous) {
  if (!walk->check_caller) return false;
  if (previous != walk->caller) return restart_from_caller(walk);
  walk->check_caller = 0;
  return false;
}

/* Frames left by an earlier call may lead back to themselves. Compares with the frame met at the last
 * power of two of steps, so that any circle is noticed within three times its length (Brent). */
static __always_inline bool walks_in_a_circle(struct walk* walk) {
  if (walk->frame == walk->earlier_frame) return true;
  walk->steps++;
  if ((walk->steps & (walk->steps - 1)) == 0) walk->earlier_frame = walk->frame;
  return false;
}

/* 3.12+: a frame that only marks the C call of the eval loop; the Python frame above it is the first
 * of that call. Of the frame in frame_bytes. */
static __always_inline bool is_shim(const struct walk* walk, __u64 code) {
  const struct dp_python_layout* layout = &walk->process.python;
  return code == 0 || code == walk->process.none ||
         (layout->shim_owner != 0xff &&
          walk->frame_bytes[layout->frame_owner & DP_FIELD_MASK] >= layout->shim_owner);
}

/* One interpreter frame; identify_frames finds its code. Returns false when the walk is over. */
static __always_inline bool walk_frame(struct walk* walk) {
  const struct dp_python_layout* layout = &walk->process.python;
  const __u8* bytes = walk->frame_bytes;
  __u64 frame = walk->frame;
  __u32 n = walk->sample.frame_count;
  if (!frame) return restart_from_caller(walk);
  if (walks_in_a_circle(walk) || !fetch_frame(walk, frame + layout->frame_base)) {
    if (restart_from_caller(walk)) return true;
    walk->sample.flags |= DP_SAMPLE_FRAME_FAULT;
    count(DP_COUNT_FRAME_FAULT);
    return false;
  }
  __u64 code = field_u64(bytes, layout->frame_code) & ~(__u64)layout->code_tag_mask;
  __u64 previous = field_u64(bytes, layout->frame_previous);
  if (is_shim(walk, code)) {
    /* Two in a row, or one at the top: the call between has left its last frame. */
    if (n == 0 || (walk->frames[(n - 1) & (DP_MAX_PYTHON_FRAMES - 1)].unit & DP_FRAME_ENTRY))
      walk->empty_call = DP_FRAME_EMPTY_CALL;
    if (n > 0) walk->frames[(n - 1) & (DP_MAX_PYTHON_FRAMES - 1)].unit |= DP_FRAME_ENTRY;
    if (check_top_call(walk, previous)) return true;
    walk->frame = previous;
    return true;
  }
  if (n >= DP_MAX_PYTHON_FRAMES) {
    walk->sample.flags |= DP_SAMPLE_TRUNCATED;
    count(DP_COUNT_TRUNCATED);
    walk->frame = 0;
    return false;
  }

  __u32 unit;
  if (layout->instr_is_index) {
    __s32 index = (__s32)field_u32(bytes, layout->frame_instr);
    unit = index < 0 || index >= (__s32)DP_FRAME_UNIT_MASK ? DP_FRAME_UNIT_NONE : (__u32)index;
    unit |= DP_FRAME_ENTRY; /* 3.10 and older: one eval-loop call per frame */
  } else {
    __u64 start = code + layout->code_instructions;
    __u64 bytes_in = field_u64(bytes, layout->frame_instr) - start;
    /* Before the first instruction the pointer is one unit below the start. */
    unit = bytes_in / 2 >= DP_FRAME_UNIT_MASK ? DP_FRAME_UNIT_NONE : (__u32)(bytes_in / 2);
    if (layout->frame_is_entry != DP_NO_OFFSET && bytes[layout->frame_is_entry & DP_FIELD_MASK]) {
      unit |= DP_FRAME_ENTRY;
      if (check_top_call(walk, previous)) return true;
    }
  }

  struct dp_frame* out = &walk->frames[n & (DP_MAX_PYTHON_FRAMES - 1)];
  out->code = code;
  out->unit = unit | walk->empty_call;
  note_frame(n, frame);
  walk->empty_call = 0;
  walk->sample.frame_count = n + 1;
  walk->frame = previous;
  return true;
}

#endif
