/* Short-lived processes: storm COUNT RATE. Forks COUNT children, RATE a second as far as the machine
 * goes; each exits at once, every fourth after becoming /bin/true. Prints "ready <pid>", waits for a
 * line on stdin, then prints "forked N in MS ms", and exits when all are reaped. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long long now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000000LL + time.tv_nsec;
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const long count = atol(argv[1]);
  const long rate = atol(argv[2]);
  printf("ready %d\n", getpid());
  fflush(stdout);
  if (getchar() == EOF) return 1;
  const long long begin = now_ns();
  long forked = 0;
  for (long i = 0; i < count; ++i) {
    while (rate && now_ns() - begin < i * 1000000000LL / rate) usleep(200);
    const pid_t child = fork();
    if (child == 0) {
      if (i % 4 == 0) execl("/bin/true", "true", "storm", (char*)0);
      _exit(0);
    }
    if (child > 0) ++forked;
    while (waitpid(-1, 0, WNOHANG) > 0) {
    }
  }
  while (wait(0) > 0) {
  }
  printf("forked %ld in %lld ms\n", forked, (now_ns() - begin) / 1000000);
  return 0;
}
