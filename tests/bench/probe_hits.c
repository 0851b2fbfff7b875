// What a hit of a uprobe with an empty BPF program costs the thread that is probed, and what it takes to remove many:
// as perf events, and as links of uprobe_multi (Linux 6.6).
//
//   cc -O2 -o /tmp/probe_hits tests/bench/probe_hits.c -lbpf && sudo /tmp/probe_hits
//
// All ways in turn, five times; each figure is the median.
#define _GNU_SOURCE
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kRounds = 5, kCalls = 200000, kMany = 16, kUprobeMulti = 48 };

// The begins of functions that the kernel emulates (push %rbp), each at a place of its own.
#define FUNCTION(n)                                             \
  __attribute__((noinline, noclone, naked)) void probed_##n() { \
    __asm__("push %rbp\n pop %rbp\n ret\n");                    \
  }
#define EACH(X) \
  X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)
EACH(FUNCTION)
#define ADDRESS(n) probed_##n,
static void (*const kFunctions[kMany])() = {EACH(ADDRESS)};

static double now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void fail(const char* what) {
  perror(what);
  exit(1);
}

// Of this program's file.
static uint64_t offset_of(void (*function)()) {
  FILE* maps = fopen("/proc/self/maps", "r");
  char line[512];
  uint64_t begin, end, offset, address = (uint64_t)function;
  while (fgets(line, sizeof line, maps))
    if (sscanf(line, "%lx-%lx %*s %lx", &begin, &end, &offset) == 3 && begin <= address &&
        address < end) {
      fclose(maps);
      return address - begin + offset;
    }
  fail("/proc/self/maps");
  return 0;
}

static int empty_program(int attach_type) {
  const struct bpf_insn text[] = {{.code = BPF_ALU64 | BPF_MOV | BPF_K},
                                  {.code = BPF_JMP | BPF_EXIT}};
  LIBBPF_OPTS(bpf_prog_load_opts, options,
              .expected_attach_type = (enum bpf_attach_type)attach_type);
  const int program = bpf_prog_load(BPF_PROG_TYPE_KPROBE, "empty", "GPL", text, 2, &options);
  if (program < 0) fail("bpf_prog_load");
  return program;
}

static int set_link(int program, uint64_t offset) {
  const struct {
    uint32_t program, target, type, flags;
    uint64_t path, offsets, semaphores, cookies;
    uint32_t count, kind, pid, unused;
  } create = {.program = (uint32_t)program,
              .type = kUprobeMulti,
              .path = (uint64_t) "/proc/self/exe",
              .offsets = (uint64_t)&offset,
              .count = 1,
              .pid = (uint32_t)getpid()};
  const int link = (int)syscall(SYS_bpf, BPF_LINK_CREATE, &create, sizeof create);
  if (link < 0) fail("BPF_LINK_CREATE");
  return link;
}

static int set_event(int program, uint64_t offset) {
  int type = 0;
  FILE* file = fopen("/sys/bus/event_source/devices/uprobe/type", "r");
  if (!file || fscanf(file, "%d", &type) != 1) fail("/sys/bus/event_source/devices/uprobe/type");
  fclose(file);
  struct perf_event_attr attributes = {.type = (uint32_t)type, .size = sizeof attributes};
  attributes.uprobe_path = (uint64_t) "/proc/self/exe";
  attributes.probe_offset = offset;
  const int event =
      (int)syscall(SYS_perf_event_open, &attributes, getpid(), -1, -1, PERF_FLAG_FD_CLOEXEC);
  if (event < 0) fail("perf_event_open");
  const int link = bpf_link_create(program, event, BPF_PERF_EVENT, NULL);
  if (link < 0) fail("bpf_link_create");
  close(event);
  return link;
}

static double ns_of_a_call(void) {
  const double began = now_ns();
  for (int i = 0; i < kCalls; i++) kFunctions[0]();
  return (now_ns() - began) / kCalls;
}

// Each by a process of its own, as dynprof-bpf does.
static double ns_to_remove(const int* links) {
  const double began = now_ns();
  for (int i = 0; i < kMany; i++) {
    const long child = syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0);
    if (child != 0) continue;
    close(links[i]);
    _exit(0);
  }
  while (wait(NULL) > 0) {
  }
  return now_ns() - began;
}

static int by_value(const void* a, const void* b) {
  const double of_a = *(const double*)a, of_b = *(const double*)b;
  return (of_a > of_b) - (of_a < of_b);
}

static double median(double* values) {
  qsort(values, kRounds, sizeof *values, by_value);
  return values[kRounds / 2];
}

int main(void) {
  const int programs[2] = {empty_program(0), empty_program(kUprobeMulti)};
  int (*const set[2])(int, uint64_t) = {set_event, set_link};
  double bare[kRounds], hit[2][kRounds], removed[2][kRounds];
  for (int round = 0; round < kRounds; round++) {
    bare[round] = ns_of_a_call();
    for (int way = 0; way < 2; way++) {
      int links[kMany];
      for (int i = 0; i < kMany; i++) links[i] = set[way](programs[way], offset_of(kFunctions[i]));
      hit[way][round] = ns_of_a_call();
      removed[way][round] = ns_to_remove(links);
    }
  }
  const double call = median(bare);
  printf("perf event: %.0f ns a hit, %.0f ms to remove %d\n", median(hit[0]) - call,
         median(removed[0]) / 1e6, kMany);
  printf("link:       %.0f ns a hit, %.0f ms to remove %d\n", median(hit[1]) - call,
         median(removed[1]) / 1e6, kMany);
  return 0;
}
