/* What it costs a thread that another CPU reads the cache lines which it uses, as dynprof-bpf reads the target's memory.
 * One thread goes through a working set at random and writes every fourth time; another one, on the next CPU, reads 20 pages
 * of it every millisecond, in every second round. ns of the first thread's CPU time per line that was read.
 *
 *     cc -O2 -pthread -o /tmp/lines tests/bench/lines_read_elsewhere.c && /tmp/lines */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096
#define LINE 64
#define PAGES_AT_ONCE 20
#define STEPS 30000000
#define ROUNDS 20

static char* set;
static size_t set_bytes;
static atomic_int reads;
static atomic_long lines;

static double seconds(clockid_t clock) {
  struct timespec time;
  clock_gettime(clock, &time);
  return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void run_on(int cpu) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET(cpu, &cpus);
  sched_setaffinity(0, sizeof cpus, &cpus);
}

static void* read_pages(void* unused) {
  static char page[PAGE];
  run_on(1);
  for (size_t at = 0;; usleep(1000)) {
    if (!reads) continue;
    for (int i = 0; i < PAGES_AT_ONCE; i++, at = (at + 7 * PAGE) % set_bytes) {
      memcpy(page, set + at, PAGE);
      asm volatile("" : : "r"(page) : "memory");
    }
    lines += PAGES_AT_ONCE * PAGE / LINE;
  }
  return unused;
}

static double use_set(void) {
  static uint32_t random = 1;
  uint64_t sum = 0;
  const double begin = seconds(CLOCK_THREAD_CPUTIME_ID);
  for (long i = 0; i < STEPS; i++) {
    random = random * 1664525 + 1013904223;
    uint64_t* word =
        (uint64_t*)(set + (((uint64_t)random * set_bytes >> 32) & ~(uint64_t)(LINE - 1)));
    sum += *word;
    if (i % 4 == 0) *word = sum;
  }
  return seconds(CLOCK_THREAD_CPUTIME_ID) - begin;
}

static void measure(void) {
  double took[2] = {0, 0};
  long read = 0;
  for (int round = 0; round < ROUNDS; round++) {
    reads = round & 1;
    usleep(2000);
    const long before = lines;
    took[round & 1] += use_set();
    if (round & 1) read += lines - before;
  }
  printf("%7zu KiB: %6.1f ns a line, %ld lines\n", set_bytes >> 10,
         (took[1] - took[0]) * 1e9 / (double)read, read);
}

int main(void) {
  const size_t kib[] = {32, 256, 1024, 4096};
  pthread_t reader;
  set = aligned_alloc(PAGE, 4096 << 10);
  memset(set, 1, 4096 << 10);
  set_bytes = 32 << 10;
  run_on(0);
  if (pthread_create(&reader, NULL, read_pages, NULL)) return 1;
  for (size_t i = 0; i < sizeof kib / sizeof *kib; i++) {
    set_bytes = kib[i] << 10;
    measure();
  }
}
