/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Who calls time.time_ns: the Python frame that runs, and whether torch begins or ends a phase there.
 *
 * Probes run in process context and may be preempted: all state is on the stack. */
#ifndef DYNPROF_BPF_CLOCK_PROBE_H
#define DYNPROF_BPF_CLOCK_PROBE_H

#include "bpf/torch_state.bpf.h"

struct running_frame {
  __u64 address;
  __u64 code;
};

/* The frame that called into C. False: the thread runs no Python, or it is not readable. */
static __always_inline bool find_running_frame(const struct dp_process* process,
                                               struct running_frame* frame) {
  const struct dp_python_layout* layout = &process->python;
  struct task_struct* task = (struct task_struct*)bpf_get_current_task();
  __u64 fsbase = BPF_CORE_READ(task, thread.fsbase);
  __u64 tstate = 0, thread_id = 0, at = 0, code = 0;
  if (!(process->flags & DP_PROCESS_PYTHON) || !fsbase) return false;
  if (!find_thread_state(process, fsbase, &tstate) || !tstate) return false;
  if (!read_user_u64(tstate + layout->tstate_thread_id, &thread_id) || thread_id != fsbase)
    return false;
  if (!read_user_u64(tstate + layout->tstate_frame, &at) || !at) return false;
  if (layout->cframe_frame != DP_NO_OFFSET && !read_user_u64(at + layout->cframe_frame, &at))
    return false;
  if (!at || !read_user_u64(at + layout->frame_base + layout->frame_code, &code)) return false;
  frame->address = at;
  frame->code = code & ~(__u64)layout->code_tag_mask;
  return true;
}

/* Which of torch's functions it is; DP_PHASE_FUNCTIONS: none. */
static __always_inline __u32 find_phase_function(const struct dp_process* process, __u64 code) {
  for (__u32 i = 0; i < DP_PHASE_FUNCTIONS; i++)
    if (code && process->torch.phase_functions[i].code == code) return i;
  return DP_PHASE_FUNCTIONS;
}

static __always_inline bool is_set(const struct dp_process* process, __u64 frame, __u16 slot) {
  __u64 object = 0;
  if (!read_user_u64(frame + process->python.frame_localsplus + 8ULL * slot, &object)) return false;
  return (object & ~(__u64)process->python.code_tag_mask) != 0;
}

static __always_inline __u16 edge_of(const struct dp_process* process,
                                     const struct dp_phase_function* function, __u64 frame) {
  if (function->kind == DP_PHASE_FUNCTION_BEGIN) return DP_PHASE_BEGIN;
  if (function->kind == DP_PHASE_FUNCTION_END) return DP_PHASE_END;
  return is_set(process, frame, function->start_slot) ? DP_PHASE_END : DP_PHASE_BEGIN;
}

/* How often a process calls time.time_ns on its own account, by the cookie of its probe. Two CPUs may
 * count at once and lose a call: it is a rate. */
struct clock_calls {
  __u64 second;
  __u32 calls;
  __u32 given_up;
};
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, DP_CLOCK_SLOTS);
  __type(key, __u32);
  __type(value, struct clock_calls);
} clock_calls SEC(".maps");

/* True: this call exceeds the limit. */
static __always_inline bool calls_too_often(struct clock_calls* calls, __u64 now_ns) {
  __u64 second = now_ns / 1000000000;
  if (calls->second != second) {
    calls->second = second;
    calls->calls = 0;
  }
  if (++calls->calls <= DP_CLOCK_CALLS_PER_SECOND) return false;
  return __sync_lock_test_and_set(&calls->given_up, 1) == 0;
}

#endif
