/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What comes back from the BPF programs through the ring buffers. Plain C, fixed widths, explicit
 * padding; sizes are asserted in both languages. Kinds are append-only. The other direction:
 * bpf/targets.h. */
#ifndef DYNPROF_BPF_EVENTS_H
#define DYNPROF_BPF_EVENTS_H

#include <linux/types.h>

#include "bpf/counters.h"
#include "bpf/limits.h"
#include "bpf/run_counts.h"
#include "bpf/targets.h"

/* Events that are one struct and nothing else: X(kind, number, struct). */
#define DP_PLAIN_EVENTS(X)                                                            \
  X(DP_EVENT_PHASE, 5, dp_phase_event)            /* torch reads the clock */         \
  X(DP_EVENT_PROBE, 6, dp_probe_event)            /* one of torch's native calls */   \
  X(DP_EVENT_WAIT, 9, dp_wait_event)              /* time a thread was off the CPU */ \
  X(DP_EVENT_ANNOTATION, 12, dp_annotation_event) /* a range that the program marks */

enum dp_event_kind {
  DP_EVENT_SAMPLE = 1,
  DP_EVENT_FORK = 2, /* struct dp_process_event; a new process (not a thread) */
  DP_EVENT_EXEC = 3,
  DP_EVENT_EXIT = 4,    /* the last thread of a process is gone */
  DP_EVENT_INLINE = 7,  /* struct dp_inline_event */
  DP_EVENT_REAPED = 10, /* struct dp_process_event; ended and waited for: its CPU time is final */
  /* struct dp_sample: where a thread was when it left the CPU. */
  DP_EVENT_WAIT_STACK = 11,
#define DP_EVENT_NUMBER(kind, number, type) kind = number,
  DP_PLAIN_EVENTS(DP_EVENT_NUMBER)
#undef DP_EVENT_NUMBER
};

struct dp_event_header {
  __u32 size; /* bytes, this header included */
  __u16 kind;
  __u16 cpu;
  __u64 time_ns; /* CLOCK_MONOTONIC */
  __u32 pid;     /* tgid */
  __u32 tid;
};
DP_ASSERT_SIZE(dp_event_header, 24);

/* First frame of its eval-loop call (3.11: is_entry, 3.12+: a shim below). */
#define DP_FRAME_ENTRY 0x80000000u
#define DP_FRAME_CODE_FAULT 0x40000000u /* identity is not valid */
/* 3.12+: above this frame is an eval-loop call without a Python frame: it is ending. */
#define DP_FRAME_EMPTY_CALL 0x20000000u
#define DP_FRAME_UNIT_MASK 0x00ffffffu
#define DP_FRAME_UNIT_NONE 0x00ffffffu /* not started: the line is the first line */

struct dp_frame {
  __u64 code;     /* address of the PyCodeObject */
  __u32 identity; /* dp_code_identity: torch frees code and reuses its address */
  __u32 unit;     /* instruction in 2-byte code units, | DP_FRAME_* */
};
DP_ASSERT_SIZE(dp_frame, 16);

enum dp_marker_status {
  DP_MARKER_OK = 0,
  DP_MARKER_UNSET = 1, /* local not assigned yet, or None */
  DP_MARKER_FAULT_READ = 2,
  DP_MARKER_WRONG_TYPE = 3,
};

#define DP_NO_VALUE (-1)

struct dp_marker {
  __u64 instance;    /* the frame's address: two calls of one marker on a stack differ in it */
  __u16 frame_index; /* into frames[], 0 = leaf */
  __u8 kind;
  __u8 status;
  __s32 autograd_id; /* DP_NO_VALUE where absent */
  __s32 frame_id;
  __s32 compile_id;
  __s32 attempt;
  __u32 user_code_identity;
  __u64 user_code; /* COMPILE: address of the code object being compiled, 0: not known */
};
DP_ASSERT_SIZE(dp_marker, 40);

#define DP_SAMPLE_TRUNCATED 1u   /* deeper than DP_MAX_PYTHON_FRAMES, or a tail call failed */
#define DP_SAMPLE_FRAME_FAULT 2u /* the root side is missing */
#define DP_SAMPLE_SUBINTERPRETER 4u
#define DP_SAMPLE_KERNEL 8u    /* SAMPLE: interrupted in the kernel, where `ip` is */
#define DP_SAMPLE_NEW_CODE 16u /* holds a code object that user space has not read */
#define DP_SAMPLE_MARKERS_CUT 32u
#define DP_SAMPLE_TORCH 64u /* a dp_torch_state follows the markers */

enum dp_torch_status {
  DP_TORCH_READ = 1,
  DP_TORCH_STALE = 2, /* the thread's dicts moved: nothing was read, user space must look again */
  DP_TORCH_FAULT = 3, /* what was found is not what it should be */
};

/* A phase name as torch holds it: the str object, and its cached hash to tell it from another one
 * that was made at its address later. */
struct dp_phase_name {
  __u64 object;
  __u64 hash;
};
DP_ASSERT_SIZE(dp_phase_name, 16);

/* What torch itself reports that a thread compiles (source T). Ids are DP_NO_VALUE when none is open. In
 * a sample phase_count names follow, outermost first. */
struct dp_torch_state {
  __u8 status; /* enum dp_torch_status */
  __u8 phase_count;
  __u16 pad;
  __s32 autograd_id;
  __s32 frame_id;
  __s32 compile_id;
  __s32 attempt;
  __u32 open_phases; /* may be more than phase_count */
};
#define DP_OPEN_PHASES_UNKNOWN (~0u) /* in a dp_phase_event: the thread's list is not known yet */
DP_ASSERT_SIZE(dp_torch_state, 24);

/* In a native address: the instruction itself, not a return address behind it. */
#define DP_NATIVE_EXACT (1ULL << 63)

/* Followed by frame_count frames (leaf first), then marker_count markers (leaf first), then with
 * DP_SAMPLE_TORCH a dp_torch_state and its phases, then native_count addresses of 8 bytes in the
 * process (leaf first, | DP_NATIVE_EXACT) and kernel_count in the kernel. */
struct dp_sample {
  struct dp_event_header header;
  union {
    __u64 ip;    /* SAMPLE: where the CPU was */
    __u64 stack; /* WAIT_STACK: its number, by which waits refer to it */
    __u64
        gpu_call; /* gpu_events.h: call << 32 | correlation, or | lower half of the stack pointer */
  };
  __u16 frame_count;
  __u16 marker_count;
  __u16 flags;
  __u16 reason; /* enum dp_counter: why there is no Python stack; DP_COUNT_SAMPLES: there is */
  __u16 native_count;
  __u16 kernel_count;
  __u16
      native_end; /* enum dp_counter: why the native stack ends; DP_COUNT_SAMPLES: thread's start */
  __u16 pad;
};
DP_ASSERT_SIZE(dp_sample, 48);

enum dp_phase_edge {
  DP_PHASE_BEGIN = 1,
  DP_PHASE_END = 2,
  /* Python code that user space has not read reads the clock: it may be one of the functions sought.
   * Only while none of them is known. */
  DP_PHASE_UNKNOWN = 3,
  /* The process reads the clock too often outside of torch: the probe is to be removed. */
  DP_PHASE_TOO_OFTEN = 4,
};

/* A thread calls time.time_ns. torch does so once where a phase begins, before it is put on the list
 * of open phases, and once where it ends, before it is taken off. */
struct dp_phase_event {
  struct dp_event_header header;
  struct dp_torch_state torch; /* status 0: this thread's thread-locals are not known */
  __u64 cpu_ns;                /* CPU time of the thread, as of the last tick */
  __u64 frame;                 /* of torch's function: begin and end of a phase have the same one */
  __u64 code;                  /* UNKNOWN: address of the code object */
  __u64 breaks;                /* length of the list of graph breaks, DP_NO_BREAKS: not known */
  __u16 edge;                  /* enum dp_phase_edge */
  __u16 function;              /* index into dp_torch_layout.phase_functions */
  __u32 name_size; /* 0: always the same name, or no ASCII str; cut at DP_PHASE_NAME_BYTES */
  char name[DP_PHASE_NAME_BYTES];
};
#define DP_NO_BREAKS (~0ULL)
DP_ASSERT_SIZE(dp_phase_event, 88 + DP_PHASE_NAME_BYTES);

/* Ring buffer `arm_requests`: a compile, or another attempt of one, begins on a thread; or Dynamo has
 * traced there. */
struct dp_arm_request {
  __u64 time_ns; /* CLOCK_MONOTONIC */
  __u32 tid;
  __u32 armed; /* 1: watchpoints are wanted, 0: no longer */
};
DP_ASSERT_SIZE(dp_arm_request, 16);

/* Dynamo begins to trace a user function, or has traced one to its end. A begin brings the frames it
 * lies in, leaf first: torch's function, contextlib's __enter__, then the frame that called it and so
 * on, each as dp_frame_key, 0 for a shim. A call left by an exception has no end: it is over when a
 * later begin does not lie in it. */
struct dp_inline_event {
  struct dp_event_header header;
  __u64 cpu_ns;
  __u64 frame; /* of torch's function: begin and end of one call have the same */
  __u64 code;  /* begin: address of the user's code object, 0: not readable */
  __u64 ip;    /* begin: behind the machine instruction that read Python's */
  __u32 identity;
  __u16 begin;
  __u16 caller_count; /* begin; an end has no room for them */
  __u64 callers[DP_MAX_INLINE_CALLERS];
};
DP_ASSERT_SIZE(dp_inline_event, 64 + 8 * DP_MAX_INLINE_CALLERS);

/* A frame that is still there: its address, and the code it runs. */
static inline __u64 dp_frame_key(__u64 frame, __u64 code) {
  return (frame ^ (code << 20) ^ (code >> 44)) * 0x9e3779b97f4a7c15ULL;
}

enum dp_probe {
  DP_PROBE_REGION_BEGIN = 1, /* a run of compiled code begins; object: its code object */
  DP_PROBE_REGION_END = 2,
  /* An autograd node written in Python runs. object: the type of its instance, where node_object is
   * known, else 0; then `types` are those of what the words from first_word on point to. */
  DP_PROBE_NODE_BEGIN = 3,
  DP_PROBE_NODE_END = 4,
  DP_PROBE_NODE_RAISED = 5,
  /* The process runs compiled regions too often: from now on runs are not sent any more; their lengths are not
   * measured either; they are not even counted. */
  DP_PROBE_NOT_SENT = 6,
  DP_PROBE_NOT_COUNTED = 7,
  DP_PROBE_NOT_TIMED = 8,
};

#define DP_NODE_WORDS (DP_PROBE_NAME_BYTES / 8)

/* A call of one of torch's native functions. */
struct dp_probe_event {
  struct dp_event_header header;
  __u64 cpu_ns; /* CPU time of the thread, as of the last tick */
  __u64 object; /* NOT_SENT, NOT_TIMED: how many runs of a second are sent */
  __u64 node;   /* NODE_BEGIN and NODE_END: address of the node */
  __u64 sp;     /* stack pointer where the function begins: a run that was left has a lower one */
  __u16 probe;  /* enum dp_probe */
  __u16 name_size;
  __u16 first_word; /* NODE_BEGIN */
  __u16 pad;
  union {
    char name[DP_PROBE_NAME_BYTES];
    __u64 types[DP_NODE_WORDS]; /* NODE_BEGIN */
  };
};
DP_ASSERT_SIZE(dp_probe_event, 64 + DP_PROBE_NAME_BYTES);

enum dp_annotation_edge {
  DP_ANNOTATION_BEGIN = 1,
  DP_ANNOTATION_END = 2,
  /* The process marks too many: from now on nothing of them is sent. */
  DP_ANNOTATION_TOO_OFTEN = 3,
};

/* As in a recording: AnnotationKind in symbolizer/recording/torch_model.h. */
enum dp_annotation_kind {
  DP_ANNOTATION_RECORD_FUNCTION = 1, /* id: address of its object */
  DP_ANNOTATION_ITT = 2,
  DP_ANNOTATION_NVTX = 3, /* id: the domain, 0: the default one */
};

/* Added to a kind: the range may end on another thread, in any order. */
#define DP_ANNOTATION_STARTED 0x100

/* A range that a thread marks begins or ends. An end has the kind and the id of the begin. */
struct dp_annotation_event {
  struct dp_event_header header;
  __u64 id;
  __u16 kind; /* enum dp_annotation_kind, maybe DP_ANNOTATION_STARTED */
  __u16 edge; /* enum dp_annotation_edge */
  __u16 name_size;
  __u16 pad;
  char name[DP_ANNOTATION_NAME_BYTES]; /* of a begin, cut */
};
DP_ASSERT_SIZE(dp_annotation_event, 40 + DP_ANNOTATION_NAME_BYTES);

/* Times of CPU are of the whole process, all threads: those that were released, and the one that
 * makes the event as of the last tick. REAPED: as wait4 reports it to the parent. */
struct dp_process_event {
  struct dp_event_header header;
  __u32 parent_pid; /* FORK: who forked */
  __u32 parent_tid; /* ... and which thread of it */
  char comm[16];
  __u64 cpu_ns;
  __s32 exit_code;  /* EXIT: as wait4's status */
  __u32 args_size;  /* EXEC: bytes of the command line that follow the path */
  __u32 args_whole; /* EXEC: bytes it has */
  __u32 peak_of;    /* DP_PEAK_*: what peak_bytes is of */
  __u64 peak_bytes; /* EXEC, EXIT: most resident memory */
};
DP_ASSERT_SIZE(dp_process_event, 80);

#define DP_PEAK_NONE 0u
#define DP_PEAK_BEFORE_EXEC 1u /* of the process so far; a vfork has the memory of its parent */
#define DP_PEAK_PROGRAM 2u     /* of the program it ran last */
#define DP_PEAK_PROCESS 3u     /* of the process, what it ran before its last exec included */

/* EXEC: the path as it was given to execve, cut at DP_EXE_BYTES, then the command line, cut at
 * DP_COMMAND_LINE_BYTES: arguments end to end, each with its 0. */
struct dp_exec_event {
  struct dp_process_event process;
  char exe[DP_EXE_BYTES];
  char args[];
};
DP_ASSERT_SIZE(dp_exec_event, 80 + DP_EXE_BYTES);

#define DP_WAIT_PREEMPTED 1u /* it could have run: another thread did */
#define DP_WAIT_AT_ATTACH 2u /* off the CPU since before we looked */
#define DP_WAIT_MARK 4u      /* no wait: says cpu_ns at that time, the thread's last */
#define DP_THREAD_ENDED 8u   /* of a dp_thread_time: its thread is ending, the slot is free */
/* The `call` of a wait that was not seen to begin: the thread may as well have been preempted. */
#define DP_CALL_UNKNOWN (-2)

/* Whether the first argument of this system call names the file that is waited for: read, write, readv,
 * writev. x86-64. */
static inline int dp_call_names_file(__s32 call) {
  return call == 0 || call == 1 || call == 19 || call == 20;
}

/* One wait, or short ones of equal place summed up. `runnable_ns` of its length the thread could have
 * run, and no CPU was free for it. */
struct dp_wait_event {
  struct dp_event_header header; /* time_ns: when the last of them was over */
  __u64 begin_ns;                /* of the first */
  __u64 length_ns;
  __u64 runnable_ns;
  __u64 cpu_ns; /* time the thread has been on a CPU until header.time_ns, since we look */
  __u64 stack;  /* number of its stack, 0: none was taken */
  __u32 count;
  __s32 call; /* number of the system call it waits in, -1: none, DP_CALL_UNKNOWN */
  __u16 mode; /* st_mode of the file that the call's first argument names, 0: not known */
  __u8 flags; /* DP_WAIT_* */
  __u8 state; /* the task's state, low byte: 1 interruptible, 2 not */
  __u32 pad;
};
DP_ASSERT_SIZE(dp_wait_event, 80);

/* Map `thread_times`: low bits of the tid -> this. A thread is switched by one CPU at a time, so only
 * its waking up can happen meanwhile. */
struct dp_thread_time {
  __u32 tid; /* 0: free */
  __u32 pid;
  __u64 out_ns;   /* off the CPU since, 0: it runs */
  __u64 in_ns;    /* on it since, 0: not known */
  __u64 wake_ns;  /* woken up since, 0: not yet, or not traced */
  __u64 delay_ns; /* sched_info.run_delay as it left the CPU */
  __u64 cpu_ns;
  __u64 exec_ns; /* its CPU time as the scheduler has it, when it last left the CPU; 0: not known */
  __u64 stack;
  __s32 call;
  __u16 mode;
  __u8 flags;
  __u8 state;
  struct dp_wait_event sum; /* short waits in one place; count 0: none */
};
DP_ASSERT_SIZE(dp_thread_time, 152);

/* Map `wait_sums`: CPU -> this. Short waits in other places than the thread's own sum is of. */
struct dp_wait_sums {
  struct dp_wait_event slots[DP_WAIT_SUM_SLOTS]; /* count 0: free */
};

/* 32 bits that change when the code object at an address is another one: its first line, the addresses of its
 * name, file and line-table objects, and from CPython 3.12 on co_version, which is one larger in each
 * new code object (0: 4,294,967,295 were made). Computed by BPF at each sample and by user space from what it read;
 * a name is used only if they agree. */
static inline __u32 dp_code_identity(__u32 first_line, __u32 version, __u64 filename, __u64 name,
                                     __u64 qualname, __u64 linetable) {
  const __u64 k = 0x9e3779b97f4a7c15ULL;
  __u64 h = first_line | (__u64)version << 32;
  h = (h ^ filename) * k;
  h = (h ^ (h >> 29) ^ name) * k;
  h = (h ^ (h >> 29) ^ qualname) * k;
  h = (h ^ (h >> 29) ^ linetable) * k;
  return (__u32)(h >> 32);
}

#endif
