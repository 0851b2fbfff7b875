/* Threads that do nothing but wait for each other: switches MODE FILE WORK_US.
 *
 * FILE is mapped; its first word is the number of passes so far. Each pass works for WORK_US (over a
 * buffer, as real work would use its caches) and then waits for another thread.
 *   pipe   two threads on one CPU pass a byte back and forth
 *   futex  32 threads on all CPUs pass 4 tokens around, each waiting on a futex of its own */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define THREADS 32
#define TOKENS 4
#define BUFFER_WORDS (256 * 1024 / 8)

static _Atomic uint64_t* passes;
static uint64_t work_ns;
static int there[2], back[2];
static _Atomic uint32_t tokens[THREADS];

static uint64_t now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void work(uint64_t* buffer) {
  if (work_ns == 0) return;
  uint64_t end = now_ns() + work_ns;
  for (size_t i = 0; now_ns() < end; i = (i + 512) % BUFFER_WORDS)
    for (size_t line = 0; line < 512; line += 8) buffer[i + line]++;
}

static void* one_end(void* number) {
  uint64_t* buffer = calloc(BUFFER_WORDS, 8);
  char byte = 'x';
  int from = number ? back[0] : there[0], to = number ? there[1] : back[1];
  for (;;) {
    if (number && write(to, &byte, 1) != 1) exit(1);
    if (read(from, &byte, 1) != 1) exit(1);
    work(buffer);
    if (!number && write(to, &byte, 1) != 1) exit(1);
    atomic_fetch_add(passes, 1);
  }
  return 0;
}

static void* in_ring(void* number) {
  uint64_t* buffer = calloc(BUFFER_WORDS, 8);
  size_t mine = (size_t)number, next = (mine + 1) % THREADS;
  for (;;) {
    while (atomic_load(&tokens[mine]) == 0)
      syscall(SYS_futex, &tokens[mine], FUTEX_WAIT_PRIVATE, 0, 0, 0, 0);
    atomic_fetch_sub(&tokens[mine], 1);
    work(buffer);
    atomic_fetch_add(passes, 1);
    atomic_fetch_add(&tokens[next], 1);
    syscall(SYS_futex, &tokens[next], FUTEX_WAKE_PRIVATE, 1, 0, 0, 0);
  }
  return 0;
}

static void on_one_cpu(void) {
  cpu_set_t set;
  sched_getaffinity(0, sizeof(set), &set);
  int last = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
    if (CPU_ISSET(cpu, &set)) last = cpu;
  CPU_ZERO(&set);
  CPU_SET(last, &set);
  sched_setaffinity(0, sizeof(set), &set);
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  int file = open(argv[2], O_RDWR);
  passes = mmap(0, 16, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  work_ns = strtoull(argv[3], 0, 10) * 1000;
  if (passes == MAP_FAILED || pipe(there) || pipe(back)) return 1;
  int pipes = strcmp(argv[1], "pipe") == 0;
  if (pipes) on_one_cpu();
  for (size_t i = 0; !pipes && i < TOKENS; i++) tokens[i * THREADS / TOKENS] = 1;
  for (size_t i = 0; i < (pipes ? 2 : THREADS); i++) {
    pthread_t thread;
    if (pthread_create(&thread, 0, pipes ? one_end : in_ring, (void*)i)) return 1;
  }
  printf("ready\n");
  fflush(stdout);
  for (;;) pause();
}
