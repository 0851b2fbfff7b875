/* The BPF programs' account of a thread's time on and off the CPU (bpf/thread_times.bpf.h), compiled for the host. There
 * is one thread, which gets a CPU as soon as it is woken. Not thread-safe. */
#ifndef DYNPROF_TESTS_UNIT_BPF_THREAD_TIMES_HOST_H
#define DYNPROF_TESTS_UNIT_BPF_THREAD_TIMES_HOST_H

#include "bpf/events.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Gets each event that the programs send. */
typedef void (*dp_host_event)(void* context, const struct dp_wait_event* event);

/* A thread that nothing is known of yet. */
void dp_host_new_thread(dp_host_event send, void* context);

/* A thread that user space found off the CPU at `now`, waiting or preempted. */
void dp_host_found_thread(__u64 now, __u64 exec_ns, int preempted);

/* The switches that the kernel tells of, at `now`. `exec_ns`: the thread's CPU time as the scheduler has it then. */
void dp_host_switched_in(__u64 now, __u64 exec_ns);
void dp_host_switched_out(__u64 now, __u64 exec_ns, int preempted);

struct dp_thread_time dp_host_thread_time(void);
__u64 dp_host_untold(void); /* the counter switch_untold, of this thread */

#ifdef __cplusplus
}
#endif

#endif
