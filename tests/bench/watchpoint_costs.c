/* What a hardware breakpoint costs the thread it is armed on: what becomes slower although it is never hit (string
 * instructions, page faults, sleeps, an instruction that leaves a virtual machine), a hit, and being armed by a thread on
 * another CPU. Needs two CPUs; nothing else may run.
 *
 *     cc -O2 -o /tmp/watchpoint_costs tests/bench/watchpoint_costs.c && /tmp/watchpoint_costs */
#define _GNU_SOURCE
#include <cpuid.h>
#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096
#define LONG (64 << 10)
#define ROUNDS 400
/* The clock takes as long as a page: so many at once. */
#define REPEATS 16

static volatile short watched;
static volatile short watched_too;
static void never_called(void) { watched++; }

static double read_clock(clockid_t clock) {
  struct timespec time;
  clock_gettime(clock, &time);
  return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}
static double now(void) { return read_clock(CLOCK_MONOTONIC); }
static double own_time(void) { return read_clock(CLOCK_THREAD_CPUTIME_ID); }

static void stay_on(int cpu) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET(cpu, &cpus);
  sched_setaffinity(0, sizeof cpus, &cpus);
}

/* ---- breakpoints, as dynprof-bpf sets them: accesses to two bytes ---- */

static int set_breakpoint(pid_t thread, uint32_t type, const volatile void* at, int disabled) {
  const uint64_t size = type == HW_BREAKPOINT_X ? sizeof(long) : HW_BREAKPOINT_LEN_2;
  struct perf_event_attr event = {.type = PERF_TYPE_BREAKPOINT,
                                  .size = sizeof event,
                                  .bp_type = type,
                                  .bp_addr = (uint64_t)at,
                                  .bp_len = size,
                                  .sample_period = 1,
                                  .disabled = disabled != 0,
                                  .exclude_kernel = 1};
  const int fd = (int)syscall(SYS_perf_event_open, &event, thread, -1, -1, 0);
  if (fd < 0) {
    perror("error: no hardware breakpoint");
    exit(1);
  }
  return fd;
}

/* ---- what may be slower ---- */

static char *to, *from;

static void copy_bytes(size_t size) {
  void *at = to, *source = from;
  asm volatile("rep movsb" : "+D"(at), "+S"(source), "+c"(size) : : "memory");
}
static void clear_bytes(size_t size) {
  void* at = to;
  asm volatile("rep stosb" : "+D"(at), "+c"(size) : "a"(0) : "memory");
}

static double copy_page(void) {
  const double begin = now();
  for (int i = 0; i < REPEATS; i++) copy_bytes(PAGE);
  return (now() - begin) / REPEATS;
}

static double clear_page(void) {
  const double begin = now();
  for (int i = 0; i < REPEATS; i++) clear_bytes(PAGE);
  return (now() - begin) / REPEATS;
}

static double copy_long(void) {
  const double begin = now();
  copy_bytes(LONG);
  return now() - begin;
}

static double page_fault(void) {
  enum { kFaults = 256 };
  char* memory =
      mmap(NULL, kFaults * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) exit(1);
  madvise(memory, kFaults * PAGE, MADV_NOHUGEPAGE);
  const double begin = now();
  for (size_t i = 0; i < kFaults; i++) ((volatile char*)memory)[i * PAGE] = 1;
  const double end = now();
  munmap(memory, kFaults * PAGE);
  return (end - begin) / kFaults;
}

/* The thread leaves its CPU and comes back. */
static double sleep_shortly(void) {
  const struct timespec pause = {0, 50000};
  const double begin = own_time();
  for (int i = 0; i < 4; i++) nanosleep(&pause, NULL);
  return (own_time() - begin) / 4;
}

/* cpuid always leaves a virtual machine; without one it is just slow. */
static double leave_guest(void) {
  unsigned a, b, c, d;
  const double begin = now();
  for (int i = 0; i < REPEATS; i++) __cpuid(0, a, b, c, d);
  return (now() - begin) / REPEATS;
}

/* ---- medians ---- */

static int compare(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static double median(double* values, int count) {
  qsort(values, (size_t)count, sizeof *values, compare);
  return values[count / 2];
}

/* Without and with take turns, so that both see the same machine. */
static void measure(const char* name, double (*work)(void)) {
  static const struct {
    uint32_t type;
    const volatile void* at;
  } kinds[] = {
      {0, NULL}, {HW_BREAKPOINT_X, (const void*)never_called}, {HW_BREAKPOINT_RW, &watched}};
  double values[3][ROUNDS];
  for (int round = 0; round < ROUNDS; round++) {
    for (int kind = 0; kind < 3; kind++) {
      const int event = kind ? set_breakpoint(0, kinds[kind].type, kinds[kind].at, 0) : -1;
      values[kind][round] = work();
      if (event >= 0) close(event);
    }
  }
  printf("%-24s %12.0f %12.0f %12.0f\n", name, median(values[0], ROUNDS), median(values[1], ROUNDS),
         median(values[2], ROUNDS));
}

static double hit(void) {
  double values[ROUNDS];
  const int event = set_breakpoint(0, HW_BREAKPOINT_RW, &watched, 0);
  for (int round = 0; round < ROUNDS; round++) {
    const double begin = now();
    for (int i = 0; i < REPEATS; i++) watched = (short)i;
    values[round] = (now() - begin) / REPEATS;
  }
  close(event);
  return median(values, ROUNDS);
}

/* ---- armed by a thread on another CPU ---- */

struct shared {
  volatile int arming;
  volatile long changes;
};

static void change_without_end(pid_t thread, struct shared* shared) {
  const struct timespec pause = {0, 200000};
  const int events[2] = {set_breakpoint(thread, HW_BREAKPOINT_RW, &watched, 1),
                         set_breakpoint(thread, HW_BREAKPOINT_RW, &watched_too, 1)};
  stay_on(0);
  for (;;) {
    for (int i = 0; i < 2; i++, nanosleep(&pause, NULL)) {
      if (!shared->arming) continue;
      for (int j = 0; j < 2; j++) {
        ioctl(events[j], i ? PERF_EVENT_IOC_DISABLE : PERF_EVENT_IOC_ENABLE, 0);
        shared->changes++;
      }
    }
  }
}

/* CPU time of this thread for each change; negative where the machine is noisier than that. */
static double armed_from_elsewhere(void) {
  struct shared* shared =
      mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  const pid_t thread = getpid();
  const pid_t child = fork();
  if (child == 0) change_without_end(thread, shared);
  double values[2][ROUNDS], changes[ROUNDS];
  for (int round = 0; round < ROUNDS; round++) {
    for (int arming = 0; arming < 2; arming++) {
      shared->arming = arming;
      const long before = shared->changes;
      const double begin = own_time();
      for (volatile long i = 0; i < 10000000; i++) {
      }
      values[arming][round] = own_time() - begin;
      if (arming) changes[round] = (double)(shared->changes - before);
    }
  }
  kill(child, SIGKILL);
  const double without = median(values[0], ROUNDS), with = median(values[1], ROUNDS);
  return (with - without) / median(changes, ROUNDS);
}

int main(void) {
  stay_on(1);
  to = aligned_alloc(PAGE, LONG);
  from = aligned_alloc(PAGE, LONG);
  memset(to, 1, LONG);
  memset(from, 2, LONG);
  printf("%-24s %12s %12s %12s\n", "ns, median", "none", "on execution", "on access");
  measure("rep movsb, 4 KiB", copy_page);
  measure("rep stosb, 4 KiB", clear_page);
  measure("rep movsb, 64 KiB", copy_long);
  measure("page fault", page_fault);
  measure("sleep, own CPU time", sleep_shortly);
  measure("cpuid", leave_guest);
  printf("%-24s %12s %12s %12.0f\n", "hit", "", "", hit());
  printf("%-24s %12s %12s %12.0f\n", "armed or disarmed", "", "", armed_from_elsewhere());
  return 0;
}
