/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Time off the CPU: why a thread of a followed process does not run, for how long, and where it was
 * when it began to wait.
 *
 * It runs at every switch of every CPU, with the run queue locked, so it must be cheap: other
 * processes cost one look-up each, and the clock is read only for followed ones. A preempted thread
 * is only timed. A wait's stack is walked only when what led to it (wait_key.bpf.h) is new on this
 * CPU, and within a token bucket. At the thread's return the wait becomes an event when it was long,
 * else it is added to the sum of those before it. Nothing is inserted into a hash. */
#include <linux/bpf.h>
#include <linux/bpf_perf_event.h>
#include <stdbool.h>

#include "bpf/kernel_types.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "bpf/sample_parts.bpf.h"
#include "bpf/scheduler.bpf.h"
#include "bpf/torch_state.bpf.h"
#include "bpf/unwind.bpf.h"
#include "bpf/wait_key.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* A wait at least this long is an event of its own; set before load. */
const volatile __u64 wait_threshold_ns = 1000000;
const volatile __u64 wait_wakeup_bytes = 1 << 20;

/* Stacks walked per second and CPU, and how many of them at once. */
#define WALK_COST_NS (1000000000ULL / 1000)
#define WALK_BURST_NS (500 * WALK_COST_NS)
/* A remembered stack is walked again after this long: what led to a wait is not all of its stack. */
#define MEMO_AGE_NS 1000000000ULL
/* A sum of short waits goes out after this long. */
#define SUM_AGE_NS 10000000ULL
#define TASK_DEAD_STATE 0x80
#define PF_EXITING 0x4

struct memo_entry {
  __u64 key;
  __u64 stack;
  __u64 walked_ns;
  __u32 fd; /* + 1: of which `mode` is, 0: none */
  __u16 mode;
  __u16 pad;
};
struct wait_memo {
  __u64 stacks;    /* walked on this CPU so far */
  __u64 credit_ns; /* the token bucket */
  __u64 refilled_ns;
  struct memo_entry entries[DP_WAIT_MEMO_SLOTS];
};

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1); /* one per possible CPU, set before load */
  __type(key, __u32);
  __type(value, struct wait_memo);
} wait_memos SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1); /* one per possible CPU, set before load */
  __type(key, __u32);
  __type(value, struct dp_wait_sums);
} wait_sums SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, DP_THREAD_TIMES);
  __type(key, __u32);
  __type(value, struct dp_thread_time);
} thread_times SEC(".maps");

/* A place where a thread waits again and again, hundreds or thousands of times a second: known by its
 * top Python frame alone, without its callers and torch's compile. */
struct quick_place {
  __u64 stack; /* as last asked; 0: not known */
  __u64 last_ns;
  __u64 asked_ns;
  struct top_frame top;
  __u16 streak; /* waits there, each soon after the one before, up to QUICK_STREAK */
  __u16 left;   /* waits until it is asked again */
  __u16 mode;
  __u16 pad;
};
#define QUICK_WAYS 4
#define QUICK_STREAK 16
#define QUICK_WAITS 64 /* on average until it is asked again */
#define QUICK_GAP_NS 1000000ULL
#define QUICK_AGE_NS 10000000ULL
#define PLAIN_AGE_NS 100000000ULL /* ... of threads that knew nothing of Python */

struct quick_places {
  __u64 keys[QUICK_WAYS]; /* of `ways` */
  __u64 thread_state;     /* of CPython, as last found */
  struct frame_fields fields;
  __u64 next; /* which way goes to the next new key: in turn */
  struct quick_place ways[QUICK_WAYS];
};

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, DP_THREAD_TIMES);
  __type(key, __u32);
  __type(value, struct quick_places);
} quick_places SEC(".maps");

int walk_wait(struct bpf_raw_tracepoint_args* ctx);
int read_wait_markers(struct bpf_raw_tracepoint_args* ctx);
int unwind_wait(struct bpf_raw_tracepoint_args* ctx);

struct {
  __uint(type, BPF_MAP_TYPE_PROG_ARRAY);
  __uint(max_entries, 3);
  __uint(key_size, sizeof(__u32));
  __array(values, int(void*));
} wait_tails SEC(".maps") = {
    .values = {[TAIL_WALK] = (void*)&walk_wait,
               [TAIL_MARKERS] = (void*)&read_wait_markers,
               [TAIL_NATIVE] = (void*)&unwind_wait},
};

/* ---- threads ---------------------------------------------------------------------------------- */

static __always_inline void send_wait(const struct dp_wait_event* event) {
  if (bpf_ringbuf_output(&events, (void*)event, sizeof(*event), BPF_RB_NO_WAKEUP))
    count(DP_COUNT_WAIT_RING_FULL);
}

static __always_inline void fill_event(struct dp_wait_event* event,
                                       const struct dp_thread_time* place, __u64 now) {
  __builtin_memset(event, 0, sizeof(*event));
  event->header.size = sizeof(*event);
  event->header.kind = DP_EVENT_WAIT;
  event->header.cpu = bpf_get_smp_processor_id();
  event->header.time_ns = now;
  event->header.pid = place->pid;
  event->header.tid = place->tid;
  event->begin_ns = now;
  event->cpu_ns = place->cpu_ns;
  event->call = -1;
}

static __always_inline void send_sum(struct dp_thread_time* place) {
  if (place->sum.count) send_wait(&place->sum);
  place->sum.count = 0;
}

/* Says the thread's time on the CPU until now. */
static __noinline void send_mark(struct dp_thread_time* place, __u64 now) {
  struct dp_wait_event event;
  fill_event(&event, place, now);
  event.count = 1;
  event.flags = DP_WAIT_MARK;
  send_wait(&event);
}

/* A thread met for the first time: its time on the CPU counts from here. */
static __noinline void begin_thread(struct dp_thread_time* place, __u32 pid, __u32 tid, __u64 now) {
  send_sum(place); /* of an older thread of that number */
  __builtin_memset(place, 0, sizeof(*place));
  place->tid = tid;
  place->pid = pid;
  send_mark(place, now);
}

static __always_inline struct dp_thread_time* place_of(__u32 tid) {
  __u32 slot = tid & (DP_THREAD_TIMES - 1);
  return bpf_map_lookup_elem(&thread_times, &slot);
}

/* The place of a followed process's thread, 0: it is of another process, or has none. A thread keeps it
 * until it ends, so who has one is followed. */
static __always_inline struct dp_thread_time* followed_place(__u64 ids,
                                                             const struct task_struct* task,
                                                             __u64* now) {
  __u32 pid = ids >> 32, tid = (__u32)ids;
  if (!tid) return 0; /* the idle thread */
  struct dp_thread_time* place = place_of(tid);
  if (!place) return 0;
  bool ended = pid_level && (place->flags & DP_THREAD_ENDED);
  bool met = place->tid == tid && place->pid == pid && !ended;
  if (!met) {
    if (ended && task && (task->flags & PF_EXITING)) return 0; /* still on its way */
    if (!bpf_map_lookup_elem(&processes, &pid)) return 0;
    if (place->tid && place->tid != tid && !ended) {
      count(DP_COUNT_WAIT_COLLISION);
      return 0;
    }
  }
  if (!*now) *now = bpf_ktime_get_ns();
  if (!met) begin_thread(place, pid, tid, *now);
  return place;
}

/* ---- the end of a wait ------------------------------------------------------------------------ */

static __always_inline bool same_place(const struct dp_wait_event* sum,
                                       const struct dp_thread_time* place) {
  return sum->header.tid == place->tid && sum->stack == place->stack && sum->call == place->call &&
         sum->flags == place->flags && sum->mode == place->mode;
}

static __always_inline void describe(struct dp_wait_event* event,
                                     const struct dp_thread_time* place, __u64 now) {
  fill_event(event, place, now);
  event->begin_ns = place->out_ns;
  event->stack = place->stack;
  event->call = place->call;
  event->mode = place->mode;
  event->flags = place->flags;
  event->state = place->state;
}

static __noinline void send_long(struct dp_thread_time* place, __u64 now, __u64 runnable) {
  struct dp_wait_event event;
  describe(&event, place, now);
  event.length_ns = now - place->out_ns;
  event.runnable_ns = runnable;
  event.count = 1;
  send_wait(&event);
}

static __always_inline void add_to(struct dp_wait_event* sum, const struct dp_thread_time* place,
                                   __u64 now, __u64 runnable) {
  sum->header.time_ns = now;
  sum->cpu_ns = place->cpu_ns;
  sum->length_ns += now - place->out_ns;
  sum->runnable_ns += runnable;
  sum->count += 1;
}

/* A sum kept by this CPU, until it is old or its slot is needed. */
static __noinline void add_to_cpu(struct dp_thread_time* place, __u64 now, __u64 runnable) {
  __u32 cpu = bpf_get_smp_processor_id();
  struct dp_wait_sums* sums = bpf_map_lookup_elem(&wait_sums, &cpu);
  if (!sums) {
    count(DP_COUNT_NO_SCRATCH);
    return;
  }
  __u64 hash = (place->stack * 31 + place->tid + place->flags) * 0x9e3779b97f4a7c15ULL;
  struct dp_wait_event* sum = &sums->slots[(hash >> 40) & (DP_WAIT_SUM_SLOTS - 1)];
  if (sum->count && (!same_place(sum, place) || now - sum->begin_ns > SUM_AGE_NS)) {
    send_wait(sum);
    sum->count = 0;
  }
  if (!sum->count) describe(sum, place, now);
  add_to(sum, place, now, runnable);
}

/* Adds a short wait to the sum of its place. Of one place the thread keeps it, of others the CPU. */
static __always_inline void sum_up(struct dp_thread_time* place, __u64 now, __u64 runnable) {
  struct dp_wait_event* sum = &place->sum;
  bool same = same_place(sum, place), old = now - sum->begin_ns > SUM_AGE_NS;
  if (sum->count && !same && !old) {
    add_to_cpu(place, now, runnable);
    return;
  }
  if (!sum->count || old) {
    send_sum(place);
    describe(sum, place, now);
  }
  add_to(sum, place, now, runnable);
}

/* How much of its time off the CPU the thread that is about to run could have run: what the scheduler
 * added to its run_delay since, and what it will add now. */
static __always_inline __u64 ready_ns(const struct dp_thread_time* place,
                                      const struct task_struct* task) {
  __u64 queued = task->sched_info.last_queued, clock = run_queue()->clock;
  __u64 waits = queued && queued < clock ? clock - queued : 0;
  if (place->flags & DP_WAIT_AT_ATTACH) return waits;
  return waits + (task->sched_info.run_delay - place->delay_ns);
}

/* The thread ran again from `now` on. */
static __always_inline void end_wait(struct dp_thread_time* place, const struct task_struct* task,
                                     __u64 now) {
  __u64 begin = place->out_ns, length = now - begin, runnable = 0;
  if (begin && begin < now) {
    if (place->flags & DP_WAIT_PREEMPTED)
      runnable = length;
    else if (delays_are_known() && task)
      runnable = ready_ns(place, task);
    else if (place->wake_ns > begin && place->wake_ns < now)
      runnable = now - place->wake_ns;
    if (runnable > length) runnable = length;
    if (length >= wait_threshold_ns)
      send_long(place, now, runnable);
    else
      sum_up(place, now, runnable);
  }
  place->out_ns = 0;
  place->in_ns = now;
  place->wake_ns = 0;
  place->flags = 0;
}

static __always_inline void switch_in(struct dp_thread_time* place, const struct task_struct* task,
                                      __u64 now) {
  /* Where it went to sleep is not known: the time since counts for nothing. */
  if (!place->out_ns && place->in_ns) count(DP_COUNT_SWITCH_UNTOLD);
  end_wait(place, task, now);
}

/* Linux 6.18 in a virtual machine leaves out some switches from the idle thread and from a few others
 * (perf does not see them either): a thread leaves the CPU that was never seen to come back. What it
 * ran since it left is what the scheduler counted. */
static __noinline void end_untold_wait(struct dp_thread_time* place, __u64 exec_ns, __u64 now) {
  __u64 ran = exec_ns - place->exec_ns;
  __u64 since = now - place->out_ns;
  count(DP_COUNT_SWITCH_UNTOLD);
  end_wait(place, bpf_get_current_task_btf(), ran < since ? now - ran : place->out_ns);
}

/* Attached where the scheduler does not keep delays. */
SEC("raw_tp/sched_wakeup")
int thread_woken(struct bpf_raw_tracepoint_args* ctx) {
  struct task_struct* task = (struct task_struct*)ctx->args[0];
  __u32 tid = tid_of(task);
  struct dp_thread_time* place = place_of(tid);
  if (tid && place && place->tid == tid && place->pid == pid_of(task) && place->out_ns &&
      !place->wake_ns)
    place->wake_ns = bpf_ktime_get_ns();
  return 0;
}

/* ---- the begin of a wait ---------------------------------------------------------------------- */

static __always_inline bool take_token(struct wait_memo* memo, __u64 now) {
  __u64 credit = memo->credit_ns + (now - memo->refilled_ns);
  if (credit > WALK_BURST_NS) credit = WALK_BURST_NS;
  memo->refilled_ns = now;
  bool may = credit >= WALK_COST_NS;
  memo->credit_ns = may ? credit - WALK_COST_NS : credit;
  return may;
}

/* Which way is that key's; where none was, the one that was given out longest ago, with QUICK_NEW. A
 * function that the verifier looks at alone: to its caller it is one number, not five cases. */
#define QUICK_NEW QUICK_WAYS
__noinline __u32 quick_way(struct quick_places* places, __u64 key) {
  if (!places) return 0;
  for (__u32 i = 0; i < QUICK_WAYS; i++)
    if (places->keys[i] == key) return i;
  __u32 way = places->next++ & (QUICK_WAYS - 1);
  places->keys[way] = key;
  return way | QUICK_NEW;
}

/* The thread has waited here many times just now, or knows nothing of Python: then the key is all there
 * is. Now and then it is asked again: not at even intervals, since what its waits have in common may
 * be even. */
static __always_inline bool often_enough(struct quick_place* quick, bool same, __u64 now) {
  bool soon = now - quick->last_ns < QUICK_GAP_NS;
  bool plain = same && quick->stack && !quick->top.kept_at;
  quick->last_ns = now;
  if (!plain && (!same || !soon)) {
    quick->streak = 0;
    return false;
  }
  if (!plain && quick->streak < QUICK_STREAK) {
    quick->streak++;
    return false;
  }
  return quick->stack && quick->left &&
         now - quick->asked_ns < (plain ? PLAIN_AGE_NS : QUICK_AGE_NS);
}

/* True: the wait's stack is taken to be the one it had here before. */
static __always_inline bool quickly_known(const struct quick_places* places,
                                          struct quick_place* quick, struct dp_thread_time* place,
                                          bool same, struct walk* walk, __u64 now) {
  if (!often_enough(quick, same, now) || !is_top_frame(walk, &quick->top, &places->fields))
    return false;
  quick->left--;
  place->stack = quick->stack;
  place->mode = quick->mode;
  return true;
}

static __always_inline void answer(struct quick_place* quick, const struct memo_entry* entry,
                                   __u64 now) {
  quick->stack = entry->stack;
  quick->mode = entry->mode;
  quick->asked_ns = now;
  quick->left = QUICK_WAITS / 2 + (bpf_get_prandom_u32() & (QUICK_WAITS - 1));
}

/* The stack remembered for the key, if it is. True: it is to be walked, under a new number. */
static __always_inline bool remember(struct dp_thread_time* place, struct quick_place* quick,
                                     __u64 key, __u32 fd, __u64 now) {
  __u32 cpu = bpf_get_smp_processor_id();
  struct wait_memo* memo = bpf_map_lookup_elem(&wait_memos, &cpu);
  if (!memo) return false;
  /* Two waits in turn that shared one slot would be walked each time: a key may lie in two. */
  __u32 slot = (key >> 40) & (DP_WAIT_MEMO_SLOTS - 1);
  struct memo_entry* entry = &memo->entries[slot];
  struct memo_entry* other = &memo->entries[slot ^ 1];
  if (entry->key != key && (other->key == key || other->walked_ns < entry->walked_ns))
    entry = other;
  bool known = entry->key == key && entry->stack;
  if (known) {
    place->stack = entry->stack;
    place->mode = entry->mode;
    answer(quick, entry, now);
    if (now - entry->walked_ns < MEMO_AGE_NS) return false;
  } else if (place->call == CALL_READ || place->call == CALL_WRITE) {
    place->mode = mode_of(fd);
  }
  if (!take_token(memo, now)) {
    if (!known) count(DP_COUNT_WAIT_NO_TOKEN);
    return false;
  }
  memo->stacks += 1;
  entry->key = key;
  entry->walked_ns = now;
  entry->mode = place->mode;
  entry->stack = place->stack = ((__u64)cpu + 1) << 40 | (memo->stacks & ((1ULL << 40) - 1));
  return true;
}

/* A thread is gone: its time on the CPU is known. */
static __always_inline void thread_gone(struct dp_thread_time* place, __u64 now) {
  if (place->in_ns && !place->out_ns) place->cpu_ns += now - place->in_ns;
  send_sum(place);
  send_mark(place, now);
}

/* In a container a thread has lost its ids by the time of its last switch: it counts until it begins to
 * end. Attached there only. */
SEC("raw_tp/sched_process_exit")
int thread_ends(struct bpf_raw_tracepoint_args* ctx __attribute__((unused))) {
  __u64 now = 0;
  struct dp_thread_time* place = followed_place(current_ids(), bpf_get_current_task_btf(), &now);
  if (!place) return 0;
  thread_gone(place, now);
  place->flags |= DP_THREAD_ENDED;
  return 0;
}

/* Notes where the wait begins. True: its stack is to be walked. */
static __always_inline bool note_wait(struct dp_thread_time* place, struct task_struct* task,
                                      __u64 now) {
  const struct pt_regs* regs = (const struct pt_regs*)bpf_task_pt_regs(task);
  __u64 call = regs->orig_rax;
  __u32 fd = (__u32)regs->rdi, pid = place->pid;
  place->call = call < 4096 ? (__s32)call : -1;
  __u64 key = mix(mix(regs->rsp, regs->rip), (__u64)place->tid << 32 | (__u32)place->call);
  if (place->call == CALL_READ || place->call == CALL_WRITE) key = mix(key, fd);
  __u32 slot = place->tid & (DP_THREAD_TIMES - 1);
  struct quick_places* places = bpf_map_lookup_elem(&quick_places, &slot);
  if (!places) return false;
  __u32 way = quick_way(places, key);
  bool same = !(way & QUICK_NEW);
  struct quick_place* quick = &places->ways[way & (QUICK_WAYS - 1)];
  struct walk* walk = current_walk();
  forget_pages();
  if (!walk || quickly_known(places, quick, place, same, walk, now)) return false;
  quick->stack = 0;
  struct dp_process* process = bpf_map_lookup_elem(&processes, &pid);
  if (!process) return false;
  set_fields(&places->fields, &process->python);
  __u64 frame = peek_top_frame(walk, process, task, &places->thread_state, &quick->top.kept_at);
  key = mix_frames(walk, &places->fields, frame, key, &quick->top.hash);
  if (process->flags & DP_PROCESS_TORCH) key = mix_torch(place->tid, key);
  if (!remember(place, quick, key, fd, now)) return false;
  begin_walk(walk, process, DP_EVENT_WAIT_STACK, (__u64)place->pid << 32 | place->tid, now);
  walk->sample.flags = DP_SAMPLE_KERNEL;
  walk->sample.stack = place->stack;
  walk->sample.reason = find_top_frame(walk);
  return true;
}

/* The thread leaves the CPU. True: the stack it waits with is to be walked. */
static __always_inline bool switch_out(struct dp_thread_time* place, struct task_struct* task,
                                       bool preempted, __u32 state, __u64 now) {
  __u64 exec_ns = task->se.sum_exec_runtime;
  /* Taken for waiting when we began to look, and it was not. */
  if (place->out_ns && (place->flags & DP_WAIT_AT_ATTACH))
    place->in_ns = place->out_ns;
  else if (place->out_ns)
    end_untold_wait(place, exec_ns, now);
  if (place->in_ns) place->cpu_ns += now - place->in_ns;
  place->wake_ns = 0;
  place->stack = 0;
  place->mode = 0;
  place->call = -1;
  place->state = (__u8)state;
  place->flags = preempted || !state ? DP_WAIT_PREEMPTED : 0;
  place->out_ns = now;
  place->exec_ns = exec_ns;
  if (delays_are_known()) place->delay_ns = task->sched_info.run_delay;
  return !place->flags && note_wait(place, task, now);
}

SEC("raw_tp/sched_switch")
int thread_switched(struct bpf_raw_tracepoint_args* ctx) {
  bool preempted = ctx->args[0] & 1;
  __u32 state = (__u32)ctx->args[3]; /* Linux 5.19 and later */
  struct task_struct* task = bpf_get_current_task_btf();
  __u64 now = 0;
  const struct task_struct* next = next_task(ctx);
  struct dp_thread_time* place = followed_place(next_ids(ctx, next), next, &now);
  if (place) switch_in(place, next, now);

  place = followed_place(pid_level ? current_ids() : ids_of(task), task, &now);
  if (!place) return 0;
  if (!preempted && (state & TASK_DEAD_STATE)) {
    thread_gone(place, now);
    place->tid = 0;
    return 0;
  }
  if (!switch_out(place, task, preempted, state, now)) return 0;
  struct walk* walk = current_walk();
  if (!walk) return 0;
  if (walk->sample.reason == DP_COUNT_SAMPLES)
    bpf_tail_call(ctx, &wait_tails, TAIL_WALK);
  else
    bpf_tail_call(ctx, &wait_tails, TAIL_NATIVE);
  count(DP_COUNT_TAIL_CALL_FAILED);
  return 0;
}

/* ---- its stack -------------------------------------------------------------------------------- */

SEC("raw_tp")
int walk_wait(struct bpf_raw_tracepoint_args* ctx) {
  struct walk* walk = current_walk();
  if (!walk) return 0;
  bool more = true;
  for (int i = 0; i < DP_FRAMES_PER_PROGRAM && more; i++) more = walk_frame(walk);
  if (more && walk->frame) {
    walk->programs++;
    if (walk->programs < DP_WALK_PROGRAMS) bpf_tail_call(ctx, &wait_tails, TAIL_WALK);
    walk->sample.flags |= DP_SAMPLE_TRUNCATED;
    count(walk->programs < DP_WALK_PROGRAMS ? DP_COUNT_TAIL_CALL_FAILED : DP_COUNT_TRUNCATED);
  }
  identify_frames(walk);
  bpf_tail_call(ctx, &wait_tails, TAIL_MARKERS);
  count(DP_COUNT_TAIL_CALL_FAILED);
  return 0;
}

SEC("raw_tp")
int read_wait_markers(struct bpf_raw_tracepoint_args* ctx) {
  struct walk* walk = current_walk();
  if (!walk) return 0;
  read_markers_and_torch(walk);
  bpf_tail_call(ctx, &wait_tails, TAIL_NATIVE);
  count(DP_COUNT_TAIL_CALL_FAILED);
  return 0;
}

static __always_inline void submit_stack(struct walk* walk) {
  __u32 size = sample_bytes(walk);
  walk->sample.header.size = size;
  __u64 flags = BPF_RB_NO_WAKEUP;
  if ((walk->sample.flags & DP_SAMPLE_NEW_CODE) ||
      bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA) > wait_wakeup_bytes)
    flags = BPF_RB_FORCE_WAKEUP;
  asm volatile("" : "+r"(size)); /* as in sampler.bpf.c */
  if (size > DP_MAX_SAMPLE_BYTES) return;
  if (bpf_ringbuf_output(&events, &walk->sample, size, flags)) count(DP_COUNT_WAIT_RING_FULL);
}

SEC("raw_tp")
int unwind_wait(struct bpf_raw_tracepoint_args* ctx) {
  struct walk* walk = current_walk();
  if (!walk) return 0;
  walk->native.at = addresses_begin(walk);
  if (walk->process.native_space) {
    if (begin_unwinding(0, walk))
      for (int i = 0; i < DP_MAX_NATIVE_FRAMES && unwind_frame(); i++) {
      }
    if (walk->sample.native_end != DP_COUNT_SAMPLES) count(walk->sample.native_end);
    append_kernel_frames(ctx, walk);
  }
  submit_stack(walk);
  return 0;
}
