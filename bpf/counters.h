/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Every way a sample can be incomplete, as data: DP_COUNTER(id, name, sentence).
 * Used by the BPF programs (index), by user space (name) and by reports (sentence).
 * Append only: the index is the identity inside one build, the name across recordings. */
#ifndef DYNPROF_BPF_COUNTERS_H
#define DYNPROF_BPF_COUNTERS_H

#define DP_COUNTERS(DP_COUNTER)                                                                    \
  DP_COUNTER(SAMPLES, "samples", "samples taken in followed processes")                            \
  DP_COUNTER(RING_FULL, "ring_full", "samples lost because the ring buffer was full")              \
  DP_COUNTER(EVENT_RING_FULL, "event_ring_full", "process events lost, ring buffer full")          \
  DP_COUNTER(NO_SCRATCH, "no_scratch", "samples lost because per-CPU scratch was missing")         \
  DP_COUNTER(NOT_PYTHON, "not_python", "samples in processes where no Python was found")           \
  DP_COUNTER(NO_THREAD_STATE, "no_thread_state", "samples of threads without a Python state")      \
  DP_COUNTER(THREAD_STATE_FAULT, "thread_state_fault", "thread state not readable")                \
  DP_COUNTER(THREAD_STATE_STALE, "thread_state_stale", "thread state belonged to another thread")  \
  DP_COUNTER(NO_FRAME, "no_frame", "samples of Python threads with no frame")                      \
  DP_COUNTER(FRAME_FAULT, "frame_fault", "stacks cut where a frame was not readable")              \
  DP_COUNTER(CODE_FAULT, "code_fault", "frames whose code object was not readable")                \
  DP_COUNTER(TORCH_STALE, "torch_stale", "samples in which torch's thread-locals had moved")       \
  DP_COUNTER(TORCH_FAULT, "torch_fault",                                                           \
             "samples in which torch's thread-locals were not plausible")                          \
  DP_COUNTER(TRUNCATED, "truncated", "stacks deeper than the frame limit, root side cut")          \
  DP_COUNTER(TAIL_CALL_FAILED, "tail_call_failed", "stacks cut because a tail call failed")        \
  DP_COUNTER(MARKERS_FULL, "markers_full", "marker frames beyond the limit of one sample")         \
  DP_COUNTER(MARKER_FAULT, "marker_fault", "marker locals not readable")                           \
  DP_COUNTER(MARKER_BAD_TYPE, "marker_bad_type", "marker locals of an unexpected type")            \
  DP_COUNTER(PROCESS_TABLE_FULL, "process_table_full", "child processes not followed, table full") \
  DP_COUNTER(COMMAND_LINE_FAULT, "command_line_fault", "command lines that could not be read")     \
  DP_COUNTER(ENDED_TABLE_FULL, "ended_table_full",                                                 \
             "processes whose CPU time is as of their exit, table full")                           \
  DP_COUNTER(SUBINTERPRETER, "subinterpreter", "samples of threads in a sub-interpreter")          \
  DP_COUNTER(CALL_BEGINNING, "call_beginning",                                                     \
             "stacks taken from the caller of a call just beginning")                              \
  /* why native stacks end early: cut towards the root */                                          \
  DP_COUNTER(NATIVE_REGISTERS, "native_registers", "native stacks missing: no user registers")     \
  DP_COUNTER(NATIVE_NO_MAPPING, "native_no_mapping", "native stacks cut outside of known files")   \
  DP_COUNTER(NATIVE_NO_TABLE, "native_no_table",                                                   \
             "native stacks cut in files whose unwind table is missing or not loaded yet")         \
  DP_COUNTER(NATIVE_NO_RULE, "native_no_rule",                                                     \
             "native stacks cut in code without unwind information")                               \
  DP_COUNTER(NATIVE_UNUSUAL, "native_unusual",                                                     \
             "native stacks cut at unwind rules that tables cannot hold")                          \
  DP_COUNTER(NATIVE_DAMAGED, "native_damaged",                                                     \
             "native stacks cut at damaged or oversized unwind information")                       \
  DP_COUNTER(NATIVE_REGISTER_LOST, "native_register_lost",                                         \
             "native stacks cut where an unwind rule needs an unknown register")                   \
  DP_COUNTER(NATIVE_FAULT, "native_fault", "native stacks cut where memory was not readable")      \
  DP_COUNTER(NATIVE_TOO_DEEP, "native_too_deep",                                                   \
             "native stacks deeper than the frame limit, root side cut")                           \
  /* time off the CPU */                                                                           \
  DP_COUNTER(WAIT_NO_TOKEN, "wait_no_token", "waits without a stack: too many new stacks at once") \
  DP_COUNTER(WAIT_COLLISION, "wait_collision",                                                     \
             "switches not timed: another thread uses the same table slot")                        \
  DP_COUNTER(WAIT_RING_FULL, "wait_ring_full", "waits lost because the ring buffer was full")      \
  DP_COUNTER(WAIT_STACK_LOST, "wait_stack_lost", "waits whose stack was lost")                     \
  DP_COUNTER(SWITCH_UNTOLD, "switch_untold",                                                       \
             "missed sched_switch events: begin or end of the wait is inferred from CPU time")     \
  DP_COUNTER(REGION_TABLE_FULL, "region_table_full",                                               \
             "runs of compiled regions not counted, table full")                                   \
  DP_COUNTER(RUN_TABLE_FULL, "run_table_full",                                                     \
             "runs of compiled regions counted without their time, table full")                    \
  /* the GPU: the first three by the kernel side, the others by the library in the target */       \
  DP_COUNTER(GPU_LAUNCH_LOST, "gpu_launch_lost", "GPU launches without a stack, ring buffer full") \
  DP_COUNTER(GPU_RECORD_LOST, "gpu_record_lost", "GPU records lost, ring buffer full")             \
  DP_COUNTER(GPU_NAME_LOST, "gpu_name_lost", "names of kernels lost, ring buffer full")            \
  DP_COUNTER(GPU_TARGET_LOST, "gpu_target_lost", "GPU records lost inside the target")             \
  DP_COUNTER(GPU_RATE_CAPPED, "gpu_rate_capped", "GPU calls left out by the rate cap")             \
  DP_COUNTER(GPU_IMPLAUSIBLE, "gpu_implausible", "GPU records with impossible times")              \
  /* counted by user space */                                                                      \
  DP_COUNTER(UNREADABLE_CODE, "unreadable_code", "code objects gone before they could be read")    \
  DP_COUNTER(EDGE_LOST, "edge_lost", "times exact events of a thread were lost")                   \
  DP_COUNTER(INLINE_LATE, "inline_late",                                                           \
             "times Dynamo began to trace before user functions were counted")                     \
  DP_COUNTER(MALFORMED_EVENT, "malformed_event", "malformed events")                               \
  DP_COUNTER(UNMERGED, "unmerged", "stacks whose native and Python parts could not be merged")     \
  DP_COUNTER(GPU_STACK_MISSING, "gpu_stack_missing",                                               \
             "GPU launches without a stack: it came with an earlier one, which was lost")

enum dp_counter {
#define DP_COUNTER_ID(id, name, sentence) DP_COUNT_##id,
  DP_COUNTERS(DP_COUNTER_ID)
#undef DP_COUNTER_ID
      DP_COUNTER_COUNT
};

#endif
