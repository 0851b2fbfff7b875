/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Bounds shared by the BPF programs and user space, and the asserts that relate them. */
#ifndef DYNPROF_BPF_LIMITS_H
#define DYNPROF_BPF_LIMITS_H

/* Frames walked by one BPF program before it tail-calls itself again, shims included: from CPython 3.12
 * on each call from C into Python puts one on the stack. */
#define DP_FRAMES_PER_PROGRAM 72
/* The kernel allows 33 tail calls in a chain: these, the marker program, the native unwinder. */
#define DP_WALK_PROGRAMS 30
#define DP_MAX_TAIL_CALLS 33
#define DP_MAX_PYTHON_FRAMES 1024
/* Marker frames whose locals are read per sample (nested compiles and inlined calls included). */
#define DP_MAX_MARKERS 16
/* Pointer steps from a marker's local to a compile id's integer. */
#define DP_MAX_PATH_STEPS 3
/* Open phases whose names are read per sample, and bytes of one name in an event. */
#define DP_MAX_PHASES 16
#define DP_MAX_OPEN_PHASES 256
#define DP_PHASE_NAME_BYTES 80
#define DP_PROBE_NAME_BYTES 64
/* Frames looked at above a user function being traced, for the one it was called by: 11 to 33 a call,
 * and as many shims from CPython 3.12 on. */
#define DP_MAX_INLINE_CALLERS 80
/* Functions of torch that begin and end phases; processes whose calls of time.time_ns are counted, and
 * how many of these in a second that are not torch's are too many: a call costs some 2 us more with a
 * probe on it. */
#define DP_PHASE_FUNCTIONS 6
#define DP_CLOCK_SLOTS 1024
#define DP_CLOCK_CALLS_PER_SECOND 2000
/* How long a request to arm a thread's watchpoints holds: 10 ms. */
#define DP_ARM_AGAIN_NS 10000000
/* Compiled regions, and compiled backwards, whose runs are counted, over all processes and the whole
 * recording; bytes of their names, "Torch-Compiled Region: !1/12/3"; runs open at once on a thread. */
#define DP_MAX_REGIONS 2048
#define DP_REGION_NAME_BYTES 40
#define DP_OPEN_RUNS 16
#define DP_MAX_RUN_THREADS 4096
/* Runs of a process in a second above which they are not sent one by one any more. Hits of the probes on runs, by second
 * and over how many seconds, and in any one second, above which those that only measure lengths are removed, and later all
 * of them: a run of a region takes four (one without lengths), one of a backward two (one), see
 * docs/development/overhead.md. */
#define DP_RUN_EVENTS_PER_SECOND 200
#define DP_RUN_HITS_PER_SECOND 1000
#define DP_RUN_HITS_SECONDS 10
#define DP_RUN_HITS_AT_ONCE 1500
/* All of these times this, of a process with DP_PROCESS_GPU_WORK. */
#define DP_RUN_LIMITS_FOR_GPU 5
/* Bytes of an annotation's name; record_functions that one thread may have open at once; and how many begins and ends
 * of annotations in a second are too many. A record_function counts as four, another range as two. */
#define DP_ANNOTATION_NAME_BYTES 128
#define DP_OPEN_RECORDS 32
#define DP_ANNOTATION_HITS_PER_SECOND 8000
/* Threads whose thread-locals of torch are known at once, over all processes. */
#define DP_MAX_TORCH_THREADS 4096
/* Processes followed at once; beyond this new children are counted as not followed. */
#define DP_MAX_PROCESSES 8192
/* Bytes of a command line and of a program's path that an exec brings along. */
#define DP_COMMAND_LINE_BYTES 4096
#define DP_EXE_BYTES 256
/* Code objects user space has read, over all processes; beyond it they are announced more often. */
#define DP_MAX_KNOWN_CODES 65536
/* Slots of the per-CPU direct-mapped cache of code objects already announced (a power of two). */
#define DP_CODE_CACHE_SLOTS 2048
/* Of each CPU too: one for each 64 bytes of frames, which are rarely smaller. */
#define DP_FRAME_CODE_SLOTS 1024
#define DP_FRAME_CODE_SHIFT 6
#define DP_MAX_CPUS 1024
/* Native frames of one sample, and kernel frames. */
#define DP_MAX_NATIVE_FRAMES 512
#define DP_MAX_KERNEL_FRAMES 64
/* Files with an unwind table at once, over all processes; slot 0 is "none". */
#define DP_MAX_UNWIND_TABLES 8192
/* Address spaces with unwind tables at once, slot 0 is "none", and executable mappings of one. */
#define DP_MAX_NATIVE_SPACES 8192
#define DP_MAX_NATIVE_MAPPINGS 4096
#define DP_SPACE_SEARCH_STEPS 13
/* Slots of the per-CPU direct-mapped memory of rules found (a power of two). */
#define DP_RULE_CACHE_SLOTS 4096
/* Places for the kernel's map of memory, a GiB apart, that one run of find_direct_map tries. */
#define DP_PLACES_TRIED 256
/* GPU launches whose stacks may be under way on one CPU: a probe may be preempted by another. */
#define DP_GPU_LAUNCH_SLOTS 4
/* Threads whose launches are remembered, and launches of each (powers of two). */
#define DP_LAUNCH_MEMOS 64
#define DP_LAUNCH_SITES 2048
/* Processes for which it is known when they compiled, by the low bits of their id (a power of two). */
#define DP_PHASE_EDGES 1024
/* Threads whose time off the CPU is kept, by the low bits of their id (powers of two, all three). */
#define DP_THREAD_TIMES 32768
/* Per CPU: stacks of waits remembered by what led to them, and sums of short waits under way. */
#define DP_WAIT_MEMO_SLOTS 1024
#define DP_WAIT_SUM_SLOTS 256

/* One read per interpreter frame and one per code object; see struct dp_python_layout. */
#define DP_PAGE_BYTES 4096
#define DP_FRAME_READ_BYTES 80
#define DP_CODE_READ_BYTES 88

#ifdef __cplusplus
static_assert(DP_FRAMES_PER_PROGRAM * DP_WALK_PROGRAMS >= 2 * DP_MAX_PYTHON_FRAMES);
static_assert(DP_WALK_PROGRAMS + 2 <= DP_MAX_TAIL_CALLS);
static_assert((DP_CODE_CACHE_SLOTS & (DP_CODE_CACHE_SLOTS - 1)) == 0);
static_assert((DP_RULE_CACHE_SLOTS & (DP_RULE_CACHE_SLOTS - 1)) == 0);
static_assert((1 << (DP_SPACE_SEARCH_STEPS - 1)) >= DP_MAX_NATIVE_MAPPINGS);
#else
_Static_assert(DP_FRAMES_PER_PROGRAM* DP_WALK_PROGRAMS >= 2 * DP_MAX_PYTHON_FRAMES,
               "walk too short");
_Static_assert(DP_WALK_PROGRAMS + 2 <= DP_MAX_TAIL_CALLS, "too many tail calls");
_Static_assert((DP_RULE_CACHE_SLOTS & (DP_RULE_CACHE_SLOTS - 1)) == 0, "not a power of two");
_Static_assert((DP_CODE_CACHE_SLOTS & (DP_CODE_CACHE_SLOTS - 1)) == 0, "not a power of two");
#endif

#endif
