/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The few kernel types the programs read, relocated by CO-RE against the running kernel's BTF. Only
 * the members named here are touched; their offsets below mean nothing. */
#ifndef DYNPROF_BPF_KERNEL_TYPES_H
#define DYNPROF_BPF_KERNEL_TYPES_H

#include <linux/types.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct thread_struct {
  unsigned long fsbase; /* x86-64: the thread pointer, pthread_self() in glibc */
};

typedef struct {
  int counter;
} atomic_t;

struct ns_common {
  unsigned int inum;
};

struct pid_namespace {
  struct ns_common ns;
};

/* What a task is called in one of the pid namespaces it is in. */
struct upid {
  int nr;
  struct pid_namespace* ns;
};

struct pid {
  unsigned int level;     /* of the innermost namespace; the initial one is 0 */
  struct upid numbers[1]; /* level + 1 of them */
};

#define DP_PIDTYPE_TGID 1

struct signal_struct {
  atomic_t live; /* threads of the process that have not begun to exit */
  struct pid* pids[2];
  int group_exit_code;
  unsigned int flags;
  unsigned long long sum_sched_runtime; /* CPU time in ns of the threads that were released */
  unsigned long maxrss; /* most pages the process had, as of its last exec or its end */
};

typedef struct {
  unsigned long pgd;
} pgd_t;

/* A count that each CPU adds to: `count` lacks what a CPU has not passed on yet, at most 32 pages each (more on
 * machines with more than 16 CPUs). */
struct percpu_counter {
  long long count;
};

/* Indices of mm_struct.rss_stat, include/linux/mm_types_task.h */
#define DP_MM_FILEPAGES 0
#define DP_MM_ANONPAGES 1
#define DP_MM_SHMEMPAGES 3

struct mm_struct {
  pgd_t* pgd;                /* the outermost page table */
  unsigned long hiwater_rss; /* most pages it had, as of the last time some were given back */
  struct percpu_counter rss_stat[4]; /* pages it has now, by kind; from Linux 6.2 on */
  unsigned long arg_start;           /* the command line: arguments end to end, each with its 0 */
  unsigned long arg_end;
};

struct linux_binprm {
  const char* filename; /* as it was given to execve */
};

struct task_struct;

/* The run queue of a CPU. */
struct rq {
  struct task_struct* curr; /* at sched_switch: the one that is about to run */
  unsigned long long clock;
};
struct cfs_rq {
  struct rq* rq; /* CONFIG_FAIR_GROUP_SCHED */
};

struct sched_entity {
  unsigned long long sum_exec_runtime; /* CPU time in ns, as of the last tick or switch */
  struct cfs_rq* cfs_rq;               /* CONFIG_FAIR_GROUP_SCHED; of the CPU the task is on */
};

/* CONFIG_SCHED_INFO; times are the run queue's. */
struct sched_info {
  unsigned long long run_delay;   /* ready to run and not running, until it last began to run */
  unsigned long long last_queued; /* ready since, 0: it runs or waits */
};

/* A call whose return is probed: the kernel put its own address where the return address was. */
struct return_instance {
  unsigned long stack; /* where that is */
  unsigned long orig_ret_vaddr;
  struct return_instance* next; /* the call around it */
};

struct uprobe_task {
  struct return_instance* return_instances;
};

/* What an open file is, by descriptor. */
struct inode {
  unsigned short i_mode;
};
struct file {
  struct inode* f_inode;
};
struct fdtable {
  unsigned int max_fds;
  struct file** fd;
};
struct files_struct {
  struct fdtable* fdt;
};

/* The kernel's; in torch_state.bpf.h a list is Python's. */
struct list_head___kernel {
  struct list_head___kernel* next;
};

struct task_struct {
  unsigned int flags;
  int pid;
  int tgid;
  char comm[16];
  struct sched_entity se;
  struct sched_info sched_info;
  struct pid* thread_pid;
  int exit_code;
  struct list_head___kernel tasks; /* of the first threads of all processes */
  unsigned long long start_time;
  struct task_struct* group_leader;
  struct mm_struct* mm;
  struct signal_struct* signal;
  struct uprobe_task* utask;
  struct files_struct* files;
  struct thread_struct thread;
};

#pragma clang attribute pop

#endif
