/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Probes on the entries of native functions, in the processes we follow:
 *
 *   time.time_ns                                       begin and end of torch's phases
 *   dynamo_eval_custom_code(tstate, frame, code, const char*, int)  begin of a run of a region
 *   _pytorch_record_function_exit(state)               ... its end, where that function calls it
 *   lookup(extra_state, ...)                           torch searches for the region to run
 *   _pytorch_record_function_exit(state)               ... has searched, where its caller calls it
 *   torch::autograd::PyNode::apply(variable_list&&)    begin of a run of an autograd node
 *   torch::autograd::PyNode::to_variable_list          ... its end: apply calls it last
 *   throw_python_error()                               ... its end by an exception
 *   and those of annotations.bpf.h
 *
 * Entries only. A return probe replaces the return address by that of a trampoline without unwind
 * information: a C++ exception through such a frame ends the process, and so does a switch of stacks.
 * A probe may be preempted, so there is no scratch memory but the stack. */
#define DP_NO_DIRECT_MAP /* it runs with interrupts on */

#include <linux/bpf.h>
#include <linux/bpf_perf_event.h>
#include <stdbool.h>

#include "bpf/kernel_types.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "bpf/clock_probe.bpf.h"
#include "bpf/run_counts.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

static __always_inline void begin_header(struct dp_event_header* header, __u16 kind, __u32 size,
                                         __u64 pid_tgid, __u64 now_ns) {
  header->size = size;
  header->kind = kind;
  header->cpu = bpf_get_smp_processor_id();
  header->time_ns = now_ns;
  header->pid = pid_tgid >> 32;
  header->tid = (__u32)pid_tgid;
}

/* ---- phases ----------------------------------------------------------------------------------- */

static __always_inline void send_phase(const struct dp_phase_event* event, __u64 flags) {
  if (bpf_ringbuf_output(&events, (void*)event, sizeof(*event), flags)) count(DP_COUNT_RING_FULL);
}

/* The caller is no known function of torch: sends an event if it may be one, or if such calls are too frequent.
 * */
static __always_inline void other_caller(struct dp_process* process, struct dp_phase_event* event,
                                         struct clock_calls* calls) {
  struct dp_marker_key key = {.code = event->code, .pid = event->header.pid};
  /* Dynamo's own profiler, where it is on: as often as Dynamo traces a function. */
  if (event->code && event->code == process->torch.inline_code) return;
  if (calls_too_often(calls, event->header.time_ns)) {
    event->edge = DP_PHASE_TOO_OFTEN;
  } else if (!process->torch.phase_functions[0].code && event->code &&
             !bpf_map_lookup_elem(&known_codes, &key)) {
    event->edge = DP_PHASE_UNKNOWN;
  } else {
    return;
  }
  send_phase(event, BPF_RB_FORCE_WAKEUP);
}

struct {
  __uint(type, BPF_MAP_TYPE_RINGBUF);
  __uint(max_entries, 1 << 16);
} arm_requests SEC(".maps");

/* Names of phases, cut to 8 bytes. "compile_" alone would also be Inductor's compile_fx_inner. */
#define DP_NAME_DYNAMO 0x00006f6d616e7964ULL    /* dynamo */
#define DP_NAME_FRAME 0x665f657269746e65ULL     /* entire_frame_compile */
#define DP_NAME_COMPILE 0x5f656c69706d6f63ULL   /* compile_attempt_N */
#define DP_NAME_ATTEMPT 0x5f74706d65747461ULL   /* its next 8 bytes */
#define DP_NAME_TRACING 0x65646f6365747962ULL   /* bytecode_tracing */
#define DP_NAME_FULLGRAPH 0x706172676c6c7566ULL /* fullgraph_capture */

/* Dynamo will trace on this thread. */
static __always_inline bool leads_to_tracing(const struct dp_phase_event* event) {
  __u64 name = *(const __u64*)event->name;
  __u64 next = *(const __u64*)(event->name + 8);
  return event->edge == DP_PHASE_BEGIN &&
         (name == DP_NAME_DYNAMO || name == DP_NAME_FRAME || name == DP_NAME_TRACING ||
          name == DP_NAME_FULLGRAPH || (name == DP_NAME_COMPILE && next == DP_NAME_ATTEMPT));
}

/* It has traced. */
static __always_inline bool ends_tracing(const struct dp_phase_event* event) {
  return event->edge == DP_PHASE_END && *(const __u64*)event->name == DP_NAME_TRACING;
}

/* Wakes the thread that arms watchpoints, which costs this one some 40 us. Several phases that lead to tracing begin one
 * shortly after the other; each asks only where that was not done a moment ago. */
static __always_inline void ask_to_arm(const struct dp_phase_event* event,
                                       struct dp_torch_thread* thread) {
  bool leads = leads_to_tracing(event);
  __u64 now_ns = event->header.time_ns;
  if (!leads && !ends_tracing(event)) return;
  if (thread) {
    if (leads && now_ns - thread->arm_asked_ns < DP_ARM_AGAIN_NS) return;
    thread->arm_asked_ns = leads ? now_ns : 0;
  }
  struct dp_arm_request request = {.time_ns = now_ns, .tid = event->header.tid, .armed = leads};
  bpf_ringbuf_output(&arm_requests, &request, sizeof(request), BPF_RB_FORCE_WAKEUP);
}

SEC("uprobe")
int clock_read(struct pt_regs* ctx) {
  __u64 pid_tgid = current_ids();
  __u32 pid = pid_tgid >> 32;
  __u32 tid = (__u32)pid_tgid;
  __u32 slot = (__u32)bpf_get_attach_cookie(ctx);
  __u64 now_ns = bpf_ktime_get_ns(); /* first: torch reads its clock next */
  struct dp_process* process = bpf_map_lookup_elem(&processes, &pid);
  struct clock_calls* calls = bpf_map_lookup_elem(&clock_calls, &slot);
  struct running_frame frame = {};
  struct dp_phase_event event;
  if (!process || !calls || calls->given_up) return 0;
  if (!find_running_frame(process, &frame)) frame.code = 0;
  __u32 index = find_phase_function(process, frame.code);
  if (index < DP_PHASE_FUNCTIONS &&
      process->torch.phase_functions[index].kind == DP_PHASE_FUNCTION_OTHER)
    return 0;
  __builtin_memset(&event, 0, sizeof(event));
  begin_header(&event.header, DP_EVENT_PHASE, sizeof(event), pid_tgid, now_ns);
  event.frame = frame.address;
  event.code = frame.code;
  event.breaks = DP_NO_BREAKS;
  if (index >= DP_PHASE_FUNCTIONS) {
    other_caller(process, &event, calls);
    return 0;
  }
  const struct dp_phase_function* function = &process->torch.phase_functions[index];
  __u64* edge = phase_edge_of(pid);
  if (edge) *edge = now_ns;
  event.function = (__u16)index;
  event.edge = edge_of(process, function, frame.address);
  if (event.edge == DP_PHASE_BEGIN) forget_open_runs(tid);
  event.cpu_ns = thread_cpu_ns();
  if (function->name_slot != DP_NO_OFFSET) {
    __u64 type = 0;
    __u64 name = read_local(process, frame.address, function->name_slot, &type);
    event.name_size = read_name(process, name, event.name, sizeof(event.name));
  }
  struct list_head list;
  if (process->torch.break_list &&
      bpf_probe_read_user(&list, sizeof(list), (const void*)process->torch.break_list) == 0 &&
      list.type == process->torch.list_type)
    event.breaks = list.size;
  struct dp_torch_thread* thread = bpf_map_lookup_elem(&torch_threads, &tid);
  if (thread && thread->pid != pid) thread = 0;
  if (thread) read_torch_state(process, thread, &list, &event.torch);
  if (!thread || !thread->phases.entry) event.torch.open_phases = DP_OPEN_PHASES_UNKNOWN;
  ask_to_arm(&event, thread);
  /* A thread that is not known is to be looked at while its first compile goes on. Else user space is not woken:
   * the thread that reads events may take this CPU from the thread before it has read its clock. */
  send_phase(&event, thread ? BPF_RB_NO_WAKEUP : BPF_RB_FORCE_WAKEUP);
  return 0;
}

/* ---- runs of compiled code -------------------------------------------------------------------- */

static __always_inline void fill_event(struct dp_probe_event* event, const struct run_probe* probe,
                                       __u16 kind) {
  __builtin_memset(event, 0, sizeof(*event));
  begin_header(&event->header, DP_EVENT_PROBE, sizeof(*event), (__u64)probe->pid << 32 | probe->tid,
               probe->now_ns);
  event->probe = kind;
  event->sp = probe->sp;
}

static __always_inline void send_run(struct dp_probe_event* event, __u64 flags) {
  event->cpu_ns = thread_cpu_ns();
  if (bpf_ringbuf_output(&events, event, sizeof(*event), flags)) count(DP_COUNT_RING_FULL);
}

/* What a probe is for. */
enum run_probe_use { RUN_BEGINS, RUN_LENGTH };

/* The process exceeds the limit of hits: less is counted from now on. */
static __always_inline void count_less(const struct run_probe* probe, struct dp_probe_event* event,
                                       bool timed) {
  __u32 flag = timed ? DP_RUNS_NOT_TIMED : DP_RUNS_NOT_COUNTED;
  if (!set_first(probe->rate, flag)) return;
  if (timed) __sync_fetch_and_or(&probe->rate->flags, DP_RUNS_NOT_SENT);
  fill_event(event, probe, timed ? DP_PROBE_NOT_TIMED : DP_PROBE_NOT_COUNTED);
  event->object = events_limit(probe);
  send_run(event, BPF_RB_FORCE_WAKEUP);
}

/* False: not a process we follow, or this is not counted any more. `event` is scratch memory. */
static __always_inline bool hit(struct run_probe* probe, struct dp_probe_event* event,
                                struct pt_regs* ctx, enum run_probe_use use) {
  __u64 slot = bpf_get_attach_cookie(ctx);
  if (slot >= DP_CLOCK_SLOTS) return false;
  probe->slot = (__u32)slot;
  probe->rate = &run_rates[bounded(slot, DP_CLOCK_SLOTS)];
  __u32 off = probe->rate->flags;
  if (off & (use == RUN_LENGTH ? DP_RUNS_NOT_COUNTED | DP_RUNS_NOT_TIMED : DP_RUNS_NOT_COUNTED))
    return false;
  probe->now_ns = bpf_ktime_get_ns();
  __u64 pid_tgid = current_ids();
  probe->pid = pid_tgid >> 32;
  probe->tid = (__u32)pid_tgid;
  probe->process = bpf_map_lookup_elem(&processes, &probe->pid);
  probe->sp = PT_REGS_SP(ctx);
  if (!probe->process) return false;
  bool timed = !(off & DP_RUNS_NOT_TIMED);
  if (!above_limit(probe, timed)) return true;
  count_less(probe, event, timed);
  /* A run that begins is still counted when lengths are given up. */
  return use == RUN_BEGINS && timed;
}

/* Counts a run that begins, and sends the event. A node whose class is not known yet has no code: its event shows
 * user space where nodes have it. */
static __always_inline int run_begins(const struct run_probe* probe, struct dp_probe_event* event,
                                      const struct dp_region_key* key) {
  struct dp_run_rate* rate = probe->rate;
  if (key->code) count_run(probe, key, event->node);
  bool often = too_many_to_send(probe, ++rate->runs);
  if (often && set_first(rate, DP_RUNS_NOT_SENT)) {
    event->probe = DP_PROBE_NOT_SENT;
    event->object = events_limit(probe);
    send_run(event, BPF_RB_FORCE_WAKEUP);
  } else if (!(rate->flags & DP_RUNS_NOT_SENT) || (!key->code && !often)) {
    send_run(event, BPF_RB_NO_WAKEUP);
  }
  return 0;
}

static __always_inline int run_ends(const struct run_probe* probe, struct dp_probe_event* event) {
  count_end(probe, event->node, event->probe == DP_PROBE_NODE_RAISED);
  if (!(probe->rate->flags & DP_RUNS_NOT_SENT)) send_run(event, BPF_RB_NO_WAKEUP);
  return 0;
}

/* At a function's entry: was it called from there? */
static __always_inline bool called_from(struct pt_regs* ctx, const struct dp_code_range* range) {
  __u64 caller = 0;
  return range->begin && read_user_u64(PT_REGS_SP(ctx), &caller) && caller > range->begin &&
         caller <= range->end;
}

SEC("uprobe")
int region_entered(struct pt_regs* ctx) {
  struct run_probe probe;
  struct dp_probe_event event;
  if (!hit(&probe, &event, ctx, RUN_BEGINS)) return 0;
  fill_event(&event, &probe, DP_PROBE_REGION_BEGIN);
  event.object = PT_REGS_PARM3(ctx);
  long size = bpf_probe_read_user_str(event.name, sizeof(event.name), (void*)PT_REGS_PARM4(ctx));
  if (size > 1) event.name_size = (__u16)(size - 1);
  struct dp_region_key key = {
      .code = event.object, .pid = probe.pid, .probe = DP_PROBE_REGION_BEGIN};
  __builtin_memcpy(key.name, event.name, sizeof(key.name));
  return run_begins(&probe, &event, &key);
}

SEC("uprobe")
int lookup_entered(struct pt_regs* ctx) {
  struct run_probe probe;
  struct dp_probe_event event;
  if (hit(&probe, &event, ctx, RUN_LENGTH)) search_begins(&probe);
  return 0;
}

/* The function that searches and the one that runs a region both call this last. */
SEC("uprobe")
int region_left(struct pt_regs* ctx) {
  struct run_probe probe;
  struct dp_probe_event event;
  if (!hit(&probe, &event, ctx, RUN_LENGTH)) return 0;
  if (called_from(ctx, &probe.process->torch.lookup)) search_ends(&probe);
  if (!called_from(ctx, &probe.process->torch.region)) return 0;
  fill_event(&event, &probe, DP_PROBE_REGION_END);
  return run_ends(&probe, &event);
}

/* The type of the object a word points to; 0: it points to none. */
static __always_inline __u64 type_at(__u64 word) {
  struct object_head head = {};
  __u64 address = 0;
  return read_user_u64(word, &address) && read_object(address, &head) ? head.type : 0;
}

SEC("uprobe")
int node_entered(struct pt_regs* ctx) {
  struct run_probe probe;
  struct dp_probe_event event;
  if (!hit(&probe, &event, ctx, RUN_BEGINS)) return 0;
  fill_event(&event, &probe, DP_PROBE_NODE_BEGIN);
  event.node = PT_REGS_PARM2(ctx); /* the first argument is where the result goes */
  __u16 offset = probe.process->torch.node_object;
  if (offset && !(offset & DP_NODE_SEARCHED)) {
    event.object = type_at(event.node + offset);
  } else {
    event.first_word = offset & ~DP_NODE_SEARCHED;
    for (__u32 i = 0; i < DP_NODE_WORDS; i++)
      event.types[i] = type_at(event.node + event.first_word + 8 * i);
  }
  struct dp_region_key key = {.code = event.object, .pid = probe.pid, .probe = DP_PROBE_NODE_BEGIN};
  return run_begins(&probe, &event, &key);
}

SEC("uprobe")
int node_left(struct pt_regs* ctx) {
  struct run_probe probe;
  struct dp_probe_event event;
  if (!hit(&probe, &event, ctx, RUN_LENGTH) || !called_from(ctx, &probe.process->torch.node))
    return 0;
  fill_event(&event, &probe, DP_PROBE_NODE_END);
  event.node = PT_REGS_PARM2(ctx);
  return run_ends(&probe, &event);
}

SEC("uprobe")
int node_raised(struct pt_regs* ctx) {
  struct run_probe probe;
  struct dp_probe_event event;
  if (!hit(&probe, &event, ctx, RUN_LENGTH) || !called_from(ctx, &probe.process->torch.node))
    return 0;
  fill_event(&event, &probe, DP_PROBE_NODE_RAISED);
  return run_ends(&probe, &event);
}

#include "bpf/annotations.bpf.h"
