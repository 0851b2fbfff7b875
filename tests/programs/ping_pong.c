/* Threads that wait for each other as fast as they can: ping_pong THREADS. Pairs of them send a byte to
 * and fro through two pipes, each time from another depth of the stack, so that there are many waits and
 * many different stacks. Prints "ready <pid>" and goes on until stdin ends.
 *
 * All on one CPU: where they use every CPU and sched_autogroup_enabled is 1, Linux 6.18 was seen to run
 * nothing else, not even its own threads, for up to a minute ("workqueue lockup" in its log), with or
 * without a recorder. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct end {
  int in, out;
  unsigned seed;
};

/* The volatile keeps the compiler from turning the recursion into a jump. */
static __attribute__((noinline)) int pass_on(const struct end* end, unsigned depth, unsigned way) {
  volatile int passed = 0;
  if (depth == 0) {
    char byte;
    passed = read(end->in, &byte, 1) == 1 && write(end->out, &byte, 1) == 1;
  } else if (way & 1) {
    passed = pass_on(end, depth - 1, way >> 1);
  } else {
    passed = pass_on(end, depth - 1, way >> 1);
  }
  return passed;
}

static void* play(void* argument) {
  struct end* end = argument;
  while (pass_on(end, rand_r(&end->seed) % 32, (unsigned)rand_r(&end->seed))) {
  }
  return NULL;
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  if (sched_setaffinity(0, sizeof one, &one)) return 1;
  const int threads = atoi(argv[1]);
  struct end* ends = calloc((size_t)threads + 2, sizeof *ends);
  for (int i = 0; i < threads; i += 2) {
    int to[2], fro[2];
    if (pipe(to) || pipe(fro)) return 1;
    ends[i] = (struct end){.in = to[0], .out = fro[1], .seed = (unsigned)i};
    ends[i + 1] = (struct end){.in = fro[0], .out = to[1], .seed = (unsigned)i + 1};
    if (write(to[1], "", 1) != 1) return 1;
    for (int k = i; k < i + 2; ++k) {
      pthread_t thread;
      if (pthread_create(&thread, NULL, play, &ends[k])) return 1;
    }
  }
  printf("ready %d\n", getpid());
  fflush(stdout);
  while (getchar() != EOF) {
  }
  return 0;
}
