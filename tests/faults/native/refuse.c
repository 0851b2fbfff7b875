/* Preloaded into dynprof-bpf: the kernel refuses what FAULTS_REFUSE says, with EPERM.
 *
 *     program:NAME   a BPF program of that name cannot be loaded
 *     link:N         the N-th BPF link, counted from 1, cannot be made
 *     map:N          the N-th BPF map cannot be made
 *     perf:N         the N-th perf event cannot be opened (EMFILE)
 *     clock          none: the time of day jumps back and forth by days
 *
 * With FAULTS_COUNTS=FILE the file holds "links maps perf" at the end. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/bpf.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { kLink, kMap, kPerf, kKinds };
static long counts[kKinds];

static const char* wish(const char* kind) {
  const char* text = getenv("FAULTS_REFUSE");
  const size_t size = strlen(kind);
  return text && strncmp(text, kind, size) == 0 && text[size] == ':' ? text + size + 1 : NULL;
}

static int counted(int kind, const char* name) {
  const char* number = wish(name);
  return __atomic_add_fetch(&counts[kind], 1, __ATOMIC_RELAXED) == (number ? atol(number) : -1);
}

static int refused(long number, long command, const union bpf_attr* attributes) {
  if (number == SYS_perf_event_open) return counted(kPerf, "perf") ? EMFILE : 0;
  if (number != SYS_bpf) return 0;
  if (command == BPF_LINK_CREATE) return counted(kLink, "link") ? EPERM : 0;
  if (command == BPF_MAP_CREATE) return counted(kMap, "map") ? EPERM : 0;
  const char* name = wish("program");
  /* The kernel keeps 15 characters. */
  return command == BPF_PROG_LOAD && name &&
                 strncmp(attributes->prog_name, name, sizeof attributes->prog_name - 1) == 0
             ? EPERM
             : 0;
}

long syscall(long number, ...) {
  long (*next)(long, ...) = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
  long words[6];
  va_list list;
  va_start(list, number);
  for (int i = 0; i < 6; i++) words[i] = va_arg(list, long);
  va_end(list);
  const int problem = refused(number, words[0], (const union bpf_attr*)words[1]);
  if (problem) {
    errno = problem;
    return -1;
  }
  return next(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}

static long step(void) {
  static long calls;
  const char* text = getenv("FAULTS_REFUSE");
  if (!text || strcmp(text, "clock") != 0) return 0;
  return __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED) % 2 ? 3 * 86400 : -5 * 86400;
}

int clock_gettime(clockid_t clock, struct timespec* time) {
  int (*next)(clockid_t, struct timespec*) =
      (int (*)(clockid_t, struct timespec*))dlsym(RTLD_NEXT, "clock_gettime");
  const int rc = next(clock, time);
  if (rc == 0 && clock == CLOCK_REALTIME) time->tv_sec += step();
  return rc;
}

time_t time(time_t* result) {
  struct timespec now = {0, 0};
  clock_gettime(CLOCK_REALTIME, &now);
  if (result) *result = now.tv_sec;
  return now.tv_sec;
}

__attribute__((destructor)) static void write_counts(void) {
  const char* path = getenv("FAULTS_COUNTS");
  FILE* file = path ? fopen(path, "we") : NULL;
  if (!file) return;
  fprintf(file, "%ld %ld %ld\n", counts[kLink], counts[kMap], counts[kPerf]);
  fclose(file);
}
