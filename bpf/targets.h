/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What user space passes to the kernel side about the processes it follows: the values of the maps that
 * user space fills in. Plain C, fixed widths, explicit padding; sizes are asserted in both languages. */
#ifndef DYNPROF_BPF_TARGETS_H
#define DYNPROF_BPF_TARGETS_H

#include <linux/types.h>
#ifdef __cplusplus
#define DP_ASSERT_SIZE(type, bytes) static_assert(sizeof(struct type) == (bytes), #type)
#else
#define DP_ASSERT_SIZE(type, bytes) _Static_assert(sizeof(struct type) == (bytes), #type)
#endif

#include "bpf/limits.h"

/* "This interpreter has no such field." */
#define DP_NO_OFFSET 0xffff

/* Where one CPython version keeps what the walker needs; bytes, measured by offsetof on 3.10-3.15; from 3.13 on
 * those that _Py_DebugOffsets has are preferred. Frame fields are relative to frame_base, code fields to
 * code_base: each object is fetched with a single read. */
struct dp_python_layout {
  __u16 tstate_thread_id;
  __u16 tstate_interp;
  __u16 tstate_frame;    /* the top frame (3.10, 3.13+) or the cframe (3.11, 3.12) */
  __u16 cframe_frame;    /* DP_NO_OFFSET where the thread state points at the frame itself */
  __u16 cframe_previous; /* the cframe of the eval-loop call below; with cframe_frame only */
  __u16 frame_base;
  __u16 frame_code;
  __u16 frame_previous;
  __u16 frame_instr;      /* instruction pointer, or int index (instr_is_index) */
  __u16 frame_owner;      /* DP_NO_OFFSET on 3.10 */
  __u16 frame_is_entry;   /* 3.11 only */
  __u16 frame_localsplus; /* from the frame itself, not from frame_base */
  __u16 code_base;
  __u16 code_firstlineno;
  __u16 code_filename;
  __u16 code_name;
  __u16 code_qualname; /* DP_NO_OFFSET on 3.10 */
  __u16 code_linetable;
  __u16 code_version;      /* co_version, DP_NO_OFFSET before 3.12 */
  __u16 code_instructions; /* first instruction, from the code object itself; unused on 3.10 */
  __u8 instr_is_index;     /* 3.10: f_lasti counts code units */
  __u8 shim_owner;         /* frames of this owner are C-stack shims (3.12+), 0xff: none */
  __u8 code_tag_mask;      /* low bits of a tagged code pointer to clear (3.14+) */
  __u8 long_tag_shift; /* 3.12+: digits = lv_tag >> 3; 0: ob_size is the count, its sign the sign */
  __u8 str_data;       /* where the characters of a compact ASCII str begin */
  __u8 str_kind_shift; /* bits of its state word below kind:3 compact:1 ascii:1 */
  __u8 pad[2];
};
DP_ASSERT_SIZE(dp_python_layout, 48);

/* A pointer chase: p = read(p + offset[i]) & ~7 for each step but the last, which yields the object.
 * It reaches an attribute in any of CPython's layouts: a slot or tuple item (1 step), a values array
 * or a split instance dict (2 or 3). */
struct dp_path {
  __s16 offset[DP_MAX_PATH_STEPS];
  __u8 steps; /* 0: unknown */
  __u8 pad;
};
DP_ASSERT_SIZE(dp_path, 8);

/* A function of torch that reads the clock where a phase begins or ends. */
enum dp_phase_function_kind {
  DP_PHASE_FUNCTION_NONE = 0,
  DP_PHASE_FUNCTION_BOTH =
      1, /* once at the begin, while `start_slot` is unset, and once at the end */
  DP_PHASE_FUNCTION_BEGIN = 2, /* one function begins the phase ... */
  DP_PHASE_FUNCTION_END = 3,   /* ... and another one ends it */
  DP_PHASE_FUNCTION_OTHER = 4, /* torch reads the clock there, but no phase begins or ends */
};
struct dp_phase_function {
  __u64 code;       /* address of its code object */
  __u16 name_slot;  /* the local that holds the phase's name, DP_NO_OFFSET: it is always the same */
  __u16 start_slot; /* BOTH: the local that holds the time of the begin */
  __u8 kind;
  __u8 pad[3];
};
DP_ASSERT_SIZE(dp_phase_function, 16);

struct dp_code_range {
  __u64 begin;
  __u64 end;
};

#define DP_NODE_SEARCHED 1u
/* How torch keeps a CompileId and a CompileContext in this process (torch 2.6: NamedTuple,
 * 2.9: instance dict, 2.13: slots). Types are verified at each read. */
struct dp_torch_layout {
  __u64 compile_id_type;
  __u64 compile_context_type;
  struct dp_path id_autograd; /* CompileId -> compiled_autograd_id (int or None) */
  struct dp_path id_frame;
  struct dp_path id_compile;
  struct dp_path context_id; /* CompileContext -> compile_id */
  struct dp_path context_attempt;
  /* The same two by a materialised __dict__, tried when the first gives nothing. */
  struct dp_path context_id_dict;
  struct dp_path context_attempt_dict;
  __u64 list_type; /* &PyList_Type, &PyUnicode_Type: what a list of phase names is made of */
  __u64 str_type;
  struct dp_phase_function phase_functions[DP_PHASE_FUNCTIONS];
  __u64 break_list; /* graph_break_reasons, a list of the module; 0: not known */
  /* The native functions that run compiled code, as they lie in the process: what they call is known by
   * its return address. 0: not known. */
  struct dp_code_range region;
  struct dp_code_range node;
  struct dp_code_range lookup; /* of the function that looks for the region to run */
  /* The function that torch enters for each user function it traces, and in it the addresses of the
   * instruction watched for its begin and of the one reached when the trace succeeded. 0: none. */
  __u64 inline_code;
  __u64 inline_begin;
  __u64 inline_end;
  __u16 inline_slot; /* its local that holds the user's code object */
  /* torch::autograd::PyNode -> its Python instance. While that is not known: DP_NODE_SEARCHED | the first of
   * DP_NODE_WORDS words to look at. */
  __u16 node_object;
  __u16 inline_begin_unit; /* the two instructions as 3.10's f_lasti counts them */
  __u16 inline_end_unit;
};
DP_ASSERT_SIZE(dp_torch_layout, 272);

/* Where an attribute of a thread-local lies in one thread: its dict, the keys table the dict had
 * when user space looked, and in it the words of key and value. Valid while both are still so. */
struct dp_dict_entry {
  __u64 dict;
  __u64 keys;
  __u64 entry; /* address of the key's word; the value's follows. 0: this thread has none */
  __u64 key;
};
DP_ASSERT_SIZE(dp_dict_entry, 32);

/* Map `torch_threads`: tid, in user space's pid namespace (bpf/pids.bpf.h) -> this. What torch keeps per
 * thread. */
struct dp_torch_thread {
  struct dp_dict_entry context; /* torch._guards._TLS.compile_context */
  struct dp_dict_entry phases;  /* torch._dynamo.utils.CHROMIUM_EVENT_LOG.tls.stack, a list */
  __u32 pid;                    /* tgid */
  __u32 pad;
  /* When its watchpoints were last asked for; 0: not since Dynamo traced on it. */
  __u64 arm_asked_ns;
};
DP_ASSERT_SIZE(dp_torch_thread, 80);

#define DP_PROCESS_PYTHON 1u       /* layout and tstate_offset are valid */
#define DP_PROCESS_TORCH 2u        /* torch is valid */
#define DP_PROCESS_FOLLOW_FORKS 4u /* children are added at fork */
#define DP_PROCESS_GPU_WORK 8u     /* its runs say which compile the work on a GPU is of */

/* Map `processes`: tgid, in user space's pid namespace (bpf/pids.bpf.h) -> this. */
struct dp_process {
  __u32 flags;
  __s32 tstate_offset; /* *(fs base + this) is the PyThreadState */
  __u64 main_interpreter;
  __u64 long_type; /* &PyLong_Type, 0: not checked */
  __u64 cell_type; /* &PyCell_Type */
  __u64 none;      /* &_Py_NoneStruct, 0: not known */
  struct dp_python_layout python;
  struct dp_torch_layout torch;
  /* Slot of the map native_spaces, 0: native stacks are not wanted; and its owner, so that a slot
   * given to another process since is not believed. */
  __u32 native_space;
  __u32 native_owner;
  __s32 tstate_other; /* as tstate_offset: asked where that is NULL; 0: none */
  __u32 pad;
};
DP_ASSERT_SIZE(dp_process, 376);

/* Map `native_spaces`: slot -> array of these, in order of address. Entry 0 is a header: start is the
 * owner, end the number of mappings that follow, bias a number that changes with the content, 0
 * while it is being written. */
struct dp_native_mapping {
  __u64 start;
  __u64 end;
  __u64 bias;   /* address in the process minus address in the file */
  __u32 table;  /* slot of unwind_tables, 0: there is none */
  __u32 serial; /* of the table that was meant */
};
DP_ASSERT_SIZE(dp_native_mapping, 32);

/* Map `unwind_tables`: slot -> array of dp_unwind_row. The first two are a header: number of rows and
 * serial, then the base that pcs count from, low and high half. Behind the rows a dp_unwind_page for each
 * page of pcs, up to the last row's. */
#define DP_UNWIND_HEADER_ROWS 2

enum dp_marker_kind {
  DP_MARKER_NONE = 0,
  DP_MARKER_COMPILE = 1,  /* local is a CompileId: a forward compile */
  DP_MARKER_ATTEMPT = 2,  /* local is an int */
  DP_MARKER_BACKWARD = 3, /* local is a CompileContext or None: a lazy backward compile */
};

/* Map `known_codes`: (tgid, code address) -> this. Code objects user space has read; kind says which
 * of them are torch's markers. */
struct dp_marker_key {
  __u64 code;
  __u32 pid;
  __u32 pad;
};
struct dp_marker_code {
  __u32 identity;  /* dp_code_identity of the code object this was resolved from */
  __u16 slot;      /* index into localsplus */
  __u16 code_slot; /* COMPILE: the local with the user's code object, DP_NO_OFFSET: none */
  __u8 kind;       /* enum dp_marker_kind */
  __u8 pad[3];
};
DP_ASSERT_SIZE(dp_marker_key, 16);
DP_ASSERT_SIZE(dp_marker_code, 12);

#endif
