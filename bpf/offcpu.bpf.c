/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Time off the CPU: why a thread of a followed process does not run, for how long, and where it was
 * when it began to wait.
 *
 * It runs at every switch of every CPU, with the run queue locked, so it must be cheap: other
 * processes cost one look-up each. A preempted thread is only timed. A wait's stack is walked only
 * when what led to it (system call, user stack and instruction pointer, top Python frames, torch's
 * compile) is new on this CPU, and within a token bucket. At the thread's return the wait becomes an
 * event when it was long, else it is summed up with equal ones. Nothing is inserted into a hash. */
#include <linux/bpf.h>
#include <linux/bpf_perf_event.h>
#include <stdbool.h>

#include "bpf/kernel_types.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "bpf/sample_parts.bpf.h"
#include "bpf/torch_state.bpf.h"
#include "bpf/unwind.bpf.h"

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
/* Python frames that tell one wait from another. */
#define KEY_FRAMES 3

#define TASK_DEAD_STATE 0x80
#define CALL_READ 0 /* x86-64 */
#define CALL_WRITE 1

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

/* A thread that waits in one place again and again, thousands of times a second: the place without its
 * Python frames, which then are not read each time. */
struct quick_place {
  __u64 key;
  __u64 stack;
  __u64 last_ns;
  __u32 streak; /* waits there in a row, each soon after the one before */
  __u16 mode;
  __u16 pad;
};
#define QUICK_STREAK 64
#define QUICK_GAP_NS 200000ULL

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, DP_THREAD_TIMES);
  __type(key, __u32);
  __type(value, struct quick_place);
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

static __always_inline struct dp_thread_time* place_of(__u32 tid) {
  __u32 slot = tid & (DP_THREAD_TIMES - 1);
  return bpf_map_lookup_elem(&thread_times, &slot);
}

/* ---- the end of a wait ------------------------------------------------------------------------ */

static __always_inline void send_wait(const struct dp_wait_event* event) {
  if (bpf_ringbuf_output(&events, (void*)event, sizeof(*event), BPF_RB_NO_WAKEUP))
    count(DP_COUNT_WAIT_RING_FULL);
}

static __always_inline bool same_place(const struct dp_wait_event* sum,
                                       const struct dp_wait_event* wait) {
  return sum->header.tid == wait->header.tid && sum->stack == wait->stack &&
         sum->call == wait->call && sum->flags == wait->flags && sum->mode == wait->mode;
}

/* Adds a short wait to the sum of its place, which goes out when it is old or its slot is needed. */
static __always_inline void sum_up(const struct dp_wait_event* wait) {
  __u32 cpu = bpf_get_smp_processor_id();
  struct dp_wait_sums* sums = bpf_map_lookup_elem(&wait_sums, &cpu);
  if (!sums) {
    count(DP_COUNT_NO_SCRATCH);
    return;
  }
  __u64 hash = (wait->stack * 31 + wait->header.tid + wait->flags) * 0x9e3779b97f4a7c15ULL;
  struct dp_wait_event* sum = &sums->slots[(hash >> 40) & (DP_WAIT_SUM_SLOTS - 1)];
  if (sum->count && (!same_place(sum, wait) || wait->header.time_ns - sum->begin_ns > SUM_AGE_NS)) {
    send_wait(sum);
    sum->count = 0;
  }
  if (!sum->count) {
    *sum = *wait;
    return;
  }
  sum->header.time_ns = wait->header.time_ns;
  sum->cpu_ns = wait->cpu_ns;
  sum->length_ns += wait->length_ns;
  sum->runnable_ns += wait->runnable_ns;
  sum->count += 1;
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
  event->count = 1;
  event->call = -1;
}

/* A thread met for the first time: its time on the CPU counts from here. */
static __always_inline void begin_thread(struct dp_thread_time* place, __u32 pid, __u32 tid,
                                         __u64 now) {
  struct dp_wait_event event;
  __builtin_memset(place, 0, sizeof(*place));
  place->tid = tid;
  place->pid = pid;
  fill_event(&event, place, now);
  event.flags = DP_WAIT_MARK;
  send_wait(&event);
}

/* The thread ran again from `now` on. */
static __always_inline void end_wait(struct dp_thread_time* place, __u64 now) {
  __u64 begin = place->out_ns;
  if (begin && begin < now) {
    struct dp_wait_event event;
    fill_event(&event, place, now);
    event.begin_ns = begin;
    event.length_ns = now - begin;
    event.stack = place->stack;
    event.call = place->call;
    event.mode = place->mode;
    event.flags = place->flags;
    event.state = place->state;
    if (place->flags & DP_WAIT_PREEMPTED)
      event.runnable_ns = event.length_ns;
    else if (place->wake_ns > begin && place->wake_ns < now)
      event.runnable_ns = now - place->wake_ns;
    if (event.length_ns >= wait_threshold_ns)
      send_wait(&event);
    else
      sum_up(&event);
  }
  place->out_ns = 0;
  place->in_ns = now;
  place->wake_ns = 0;
  place->flags = 0;
}

static __always_inline void switch_in(struct task_struct* task, __u64 now) {
  __u32 tid = tid_of(task);
  if (!tid) return; /* the idle thread */
  __u32 pid = pid_of(task);
  if (!bpf_map_lookup_elem(&processes, &pid)) return;
  struct dp_thread_time* place = place_of(tid);
  if (!place) return;
  if (place->tid != tid || place->pid != pid) {
    if (place->tid && place->tid != tid) {
      count(DP_COUNT_WAIT_COLLISION);
      return;
    }
    begin_thread(place, pid, tid, now);
  }
  /* Where it went to sleep is not known: the time since counts for nothing. */
  if (!place->out_ns && place->in_ns) count(DP_COUNT_SWITCH_UNTOLD);
  end_wait(place, now);
}

/* Linux 6.18 in a virtual machine leaves out some switches from the idle thread and from a few others
 * (perf does not see them either): a thread leaves the CPU that was never seen to come back. What it
 * ran since it left is what the scheduler counted. */
static __always_inline void end_untold_wait(struct dp_thread_time* place, __u64 exec_ns,
                                            __u64 now) {
  __u64 ran = exec_ns - place->exec_ns;
  __u64 since = now - place->out_ns;
  count(DP_COUNT_SWITCH_UNTOLD);
  end_wait(place, ran < since ? now - ran : place->out_ns);
}

SEC("raw_tp/sched_wakeup")
int thread_woken(struct bpf_raw_tracepoint_args* ctx) {
  struct task_struct* task = (struct task_struct*)ctx->args[0];
  __u32 pid = pid_of(task);
  if (!bpf_map_lookup_elem(&processes, &pid)) return 0;
  __u32 tid = tid_of(task);
  struct dp_thread_time* place = place_of(tid);
  if (place && place->tid == tid && place->out_ns && !place->wake_ns)
    place->wake_ns = bpf_ktime_get_ns();
  return 0;
}

/* ---- the begin of a wait ---------------------------------------------------------------------- */

static __always_inline __u64 mix(__u64 hash, __u64 value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15ULL;
  return hash ^ (hash >> 29);
}

/* The top Python frames: which they are, and their instructions. */
static __always_inline __u64 mix_python(struct walk* walk, __u64 hash) {
  const struct dp_python_layout* layout = &walk->process.python;
  const __u8* bytes = walk->frame_bytes;
  walk->sample.reason = find_top_frame(walk);
  __u64 frame = walk->frame;
  if (walk->sample.reason != DP_COUNT_SAMPLES) return hash;
  for (int i = 0; i < KEY_FRAMES && frame; i++) {
    if (bpf_probe_read_user(walk->frame_bytes, DP_FRAME_READ_BYTES,
                            (const void*)(frame + layout->frame_base)))
      break;
    hash = mix(hash, frame);
    hash = mix(hash, field_u64(bytes, layout->frame_code));
    hash = mix(hash, layout->instr_is_index ? field_u32(bytes, layout->frame_instr)
                                            : field_u64(bytes, layout->frame_instr));
    frame = field_u64(bytes, layout->frame_previous);
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

static __always_inline bool take_token(struct wait_memo* memo, __u64 now) {
  __u64 credit = memo->credit_ns + (now - memo->refilled_ns);
  if (credit > WALK_BURST_NS) credit = WALK_BURST_NS;
  memo->refilled_ns = now;
  bool may = credit >= WALK_COST_NS;
  memo->credit_ns = may ? credit - WALK_COST_NS : credit;
  return may;
}

/* True: the thread has waited here many times just now, and its stack is taken to be what it was. Every
 * QUICK_STREAK times it is asked again. */
static __always_inline bool quickly_known(struct quick_place* quick, struct dp_thread_time* place,
                                          __u64 key, __u64 now) {
  bool again = quick->key == key && now - quick->last_ns < QUICK_GAP_NS;
  quick->key = key;
  quick->last_ns = now;
  quick->streak = again ? quick->streak + 1 : 0;
  if (quick->streak < QUICK_STREAK || !quick->stack || quick->streak % QUICK_STREAK == 0)
    return false;
  place->stack = quick->stack;
  place->mode = quick->mode;
  return true;
}

/* Notes where the wait begins. True: its stack is to be walked. */
static __always_inline bool note_wait(struct dp_thread_time* place, struct dp_process* process,
                                      struct walk* walk, __u64 now) {
  __u32 cpu = bpf_get_smp_processor_id();
  struct wait_memo* memo = bpf_map_lookup_elem(&wait_memos, &cpu);
  struct pt_regs regs;
  struct task_struct* task = bpf_get_current_task_btf();
  const void* saved = (const void*)bpf_task_pt_regs(task);
  if (!memo || !saved || bpf_probe_read_kernel(&regs, sizeof(regs), saved)) return false;
  __s64 call = (__s64)regs.orig_rax;
  place->call = call >= 0 && call < 4096 ? (__s32)call : -1;
  bool is_file = place->call == CALL_READ || place->call == CALL_WRITE;
  __u32 fd = (__u32)regs.rdi;
  __u64 key = mix(mix(regs.rsp, regs.rip), (__u64)place->tid << 32 | (__u32)place->call);
  if (is_file) key = mix(key, fd);
  __u32 slot = place->tid & (DP_THREAD_TIMES - 1);
  struct quick_place* quick = bpf_map_lookup_elem(&quick_places, &slot);
  if (!quick || quickly_known(quick, place, key, now)) return false;
  quick->stack = 0;
  begin_walk(walk, process, DP_EVENT_WAIT_STACK, (__u64)place->pid << 32 | place->tid, now);
  walk->sample.flags = DP_SAMPLE_KERNEL;
  key = mix_python(walk, key);
  if (process->flags & DP_PROCESS_TORCH) key = mix_torch(place->tid, key);
  struct memo_entry* entry = &memo->entries[(key >> 40) & (DP_WAIT_MEMO_SLOTS - 1)];
  bool known = entry->key == key && entry->stack;
  if (known) {
    place->stack = entry->stack;
    place->mode = entry->mode;
    quick->stack = entry->stack;
    quick->mode = entry->mode;
    if (now - entry->walked_ns < MEMO_AGE_NS) return false;
  } else if (is_file) {
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
  walk->sample.ip = entry->stack;
  return true;
}

/* A thread is gone: its place is free, and its time on the CPU is known. */
static __always_inline void thread_gone(__u32 tid, __u64 now) {
  struct dp_thread_time* place = place_of(tid);
  if (!place || place->tid != tid) return;
  struct dp_wait_event event;
  if (place->in_ns && !place->out_ns) place->cpu_ns += now - place->in_ns;
  fill_event(&event, place, now);
  event.flags = DP_WAIT_MARK;
  send_wait(&event);
  place->tid = 0;
}

SEC("raw_tp/sched_switch")
int thread_switched(struct bpf_raw_tracepoint_args* ctx) {
  bool preempted = ctx->args[0] & 1;
  __u32 state = (__u32)ctx->args[3]; /* Linux 5.19 and later */
  __u64 now = bpf_ktime_get_ns();
  switch_in((struct task_struct*)ctx->args[2], now);

  __u64 pid_tgid = current_ids();
  __u32 pid = pid_tgid >> 32;
  __u32 tid = (__u32)pid_tgid;
  if (!tid) return 0;
  if (!preempted && (state & TASK_DEAD_STATE)) {
    thread_gone(tid, now);
    return 0;
  }
  struct dp_process* process = bpf_map_lookup_elem(&processes, &pid);
  if (!process) return 0;
  struct dp_thread_time* place = place_of(tid);
  struct walk* walk = current_walk();
  if (!place || !walk) return 0;
  if (place->tid != tid || place->pid != pid) {
    if (place->tid && place->tid != tid) {
      count(DP_COUNT_WAIT_COLLISION);
      return 0;
    }
    begin_thread(place, pid, tid, now);
  }
  __u64 exec_ns = thread_cpu_ns();
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
  if (place->flags || !note_wait(place, process, walk, now)) return 0;
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
  __u32 cpu = bpf_get_smp_processor_id();
  struct code_cache* cache = bpf_map_lookup_elem(&code_caches, &cpu);
  if (!walk || !cache) return 0;
  bool more = true;
  for (int i = 0; i < DP_FRAMES_PER_PROGRAM && more; i++) more = walk_frame(walk, cache);
  if (more && walk->frame) {
    walk->programs++;
    if (walk->programs < DP_WALK_PROGRAMS) bpf_tail_call(ctx, &wait_tails, TAIL_WALK);
    walk->sample.flags |= DP_SAMPLE_TRUNCATED;
    count(walk->programs < DP_WALK_PROGRAMS ? DP_COUNT_TAIL_CALL_FAILED : DP_COUNT_TRUNCATED);
  }
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
