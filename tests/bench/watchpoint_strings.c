/* What string instructions and page faults cost a thread that has a hardware breakpoint armed which it
 * never hits: none, on writing, on execution. Lowest of many rounds, in ns.
 *
 *     cc -O2 -o /tmp/watchpoint_strings tests/bench/watchpoint_strings.c && /tmp/watchpoint_strings */
#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096
#define LONG (64 << 10)
#define FAULTS 2048
#define ROUNDS 1000
/* The clock takes as long as a page: so many at once. */
#define REPEATS 16

static long never_written;
static void never_called(void) { never_written++; }

static uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void copy_bytes(char* to, const char* from, size_t size) {
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(size) : : "memory");
}

static void clear_bytes(char* to, size_t size) {
  asm volatile("rep stosb" : "+D"(to), "+c"(size) : "a"(0) : "memory");
}

static double fault(void) {
  char* memory =
      mmap(NULL, FAULTS * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) exit(1);
  madvise(memory, FAULTS * PAGE, MADV_NOHUGEPAGE);
  uint64_t begin = now();
  for (size_t i = 0; i < FAULTS; i++) ((volatile char*)memory)[i * PAGE] = 1;
  uint64_t end = now();
  munmap(memory, FAULTS * PAGE);
  return (double)(end - begin) / FAULTS;
}

static int arm(uint32_t type, const volatile void* at, uint64_t size) {
  struct perf_event_attr event = {.type = PERF_TYPE_BREAKPOINT,
                                  .size = sizeof(event),
                                  .bp_type = type,
                                  .bp_addr = (uint64_t)at,
                                  .bp_len = size,
                                  .sample_period = 1,
                                  .exclude_kernel = 1};
  return (int)syscall(SYS_perf_event_open, &event, 0, -1, -1, 0);
}

static void least(double* lowest, double value) {
  if (value < *lowest) *lowest = value;
}

static void measure(const char* name, char* to, const char* from) {
  double copy = 1e9, clear = 1e9, copy_long = 1e9, page_fault = 1e9;
  for (int round = 0; round < ROUNDS; round++) {
    uint64_t begin = now();
    for (int i = 0; i < REPEATS; i++) copy_bytes(to, from, PAGE);
    uint64_t copied = now();
    for (int i = 0; i < REPEATS; i++) clear_bytes(to, PAGE);
    uint64_t cleared = now();
    copy_bytes(to, from, LONG);
    uint64_t end = now();
    least(&copy, (double)(copied - begin) / REPEATS);
    least(&clear, (double)(cleared - copied) / REPEATS);
    least(&copy_long, (double)(end - cleared));
  }
  for (int round = 0; round < 20; round++) least(&page_fault, fault());
  printf("%-18s %14.0f %14.0f %14.0f %12.0f\n", name, copy, clear, copy_long, page_fault);
}

int main(void) {
  char* to = aligned_alloc(PAGE, LONG);
  char* from = aligned_alloc(PAGE, LONG);
  memset(to, 1, LONG);
  memset(from, 2, LONG);
  printf("%-18s %14s %14s %14s %12s\n", "breakpoint", "movsb 4 KiB", "stosb 4 KiB", "movsb 64 KiB",
         "page fault");
  measure("none", to, from);
  int event = arm(HW_BREAKPOINT_X, (const void*)never_called, sizeof(long));
  if (event < 0) {
    perror("error: no hardware breakpoint");
    return 1;
  }
  measure("on execution", to, from);
  close(event);
  event = arm(HW_BREAKPOINT_W, &never_written, sizeof(never_written));
  if (event < 0) {
    perror("error: no hardware breakpoint");
    return 1;
  }
  measure("on writing", to, from);
  return 0;
}
