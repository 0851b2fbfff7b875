/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Process and thread ids as user space sees them: those of the pid namespace that dynprof-bpf runs in.
 * In the initial one the kernel's own helper returns them; in a container they are read from the task.
 * Include order: kernel_types.h, <bpf/bpf_core_read.h>, <bpf/bpf_helpers.h>, this. */
#ifndef DYNPROF_BPF_PIDS_H
#define DYNPROF_BPF_PIDS_H

/* Of user space's namespace: how many are around it, and its inode number. 0: the initial one. Set
 * before load (user/kernel/pid_namespace.h), so that the verifier drops what is not needed. */
const volatile __u32 pid_level;
const volatile __u32 pid_inode;

/* 0: the task is in no namespace that ours contains. */
static __always_inline __u32 id_of(struct pid* pid) {
  if (!pid || BPF_CORE_READ(pid, level) < pid_level) return 0;
  const void* numbers = (const void*)pid + bpf_core_field_offset(struct pid, numbers);
  const struct upid* at = numbers + (__u64)pid_level * bpf_core_type_size(struct upid);
  if (BPF_CORE_READ(at, ns, ns.inum) != pid_inode) return 0;
  return (__u32)BPF_CORE_READ(at, nr);
}

static __always_inline __u32 pid_of(struct task_struct* task) {
  if (!pid_level) return (__u32)BPF_CORE_READ(task, tgid);
  return id_of(BPF_CORE_READ(task, signal, pids[DP_PIDTYPE_TGID]));
}

static __always_inline __u32 tid_of(struct task_struct* task) {
  if (!pid_level) return (__u32)BPF_CORE_READ(task, pid);
  return id_of(BPF_CORE_READ(task, thread_pid));
}

/* As bpf_get_current_pid_tgid(): the process in the upper half, the thread in the lower one. */
static __always_inline __u64 current_ids(void) {
  if (!pid_level) return bpf_get_current_pid_tgid();
  struct task_struct* task = (struct task_struct*)bpf_get_current_task();
  return (__u64)pid_of(task) << 32 | tid_of(task);
}

#endif
