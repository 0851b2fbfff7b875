// Native code whose stack is known: leaf() notes its callers' return addresses by the C library's own
// unwinder, then burns CPU without leaving its frame, but for asking the clock. A shared library, used
// by known_native.py through ctypes; compiled by the test, without frame pointers.
#include <alloca.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <unwind.h>

#define NOINLINE __attribute__((noinline))
#define KEEP asm volatile("" ::: "memory")

extern "C" {

// What known_native.py reads; one per thread.
struct Record {
  uint64_t begin, end, cpu_ns;
  uint32_t tid, count;
  uint64_t ips[1024];  // instruction addresses, leaf()'s caller first; return addresses
};
thread_local Record record;
thread_local uint64_t burn_ns;

Record* own_record(uint64_t ns) {
  burn_ns = ns;
  return &record;
}

static uint64_t now(clockid_t clock) {
  timespec time;
  clock_gettime(clock, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1000000000 + static_cast<uint64_t>(time.tv_nsec);
}

static _Unwind_Reason_Code note(_Unwind_Context* context, void*) {
  uint64_t ip = _Unwind_GetIP(context);
  if (ip && record.count < 1024) record.ips[record.count++] = ip;
  return _URC_NO_REASON;
}

NOINLINE int leaf(void) {
  record.count = 0;
  record.tid = static_cast<uint32_t>(syscall(SYS_gettid));
  _Unwind_Backtrace(note, nullptr);
  uint64_t cpu = now(CLOCK_THREAD_CPUTIME_ID);
  record.begin = now(CLOCK_MONOTONIC);
  do {
    for (volatile int i = 0; i < 2000; i = i + 1) KEEP;
    record.end = now(CLOCK_MONOTONIC);
  } while (record.end < record.begin + burn_ns);
  record.cpu_ns = now(CLOCK_THREAD_CPUTIME_ID) - cpu;
  return 1;
}

NOINLINE int recurse(int depth) {
  int below = depth ? recurse(depth - 1) : leaf();
  KEEP;
  return below + 1;
}

NOINLINE int with_alloca(int size) {
  volatile char* bytes = static_cast<char*>(alloca(static_cast<size_t>(size)));
  bytes[0] = 1;
  int below = size > 100 ? with_alloca(size / 2) : leaf();
  KEEP;
  return below + bytes[0];
}

struct alignas(64) Wide {
  double values[16];
};
NOINLINE int realigned(int more, ...) {
  volatile Wide wide{};
  volatile char* bytes = static_cast<char*>(alloca(static_cast<size_t>(more)));
  bytes[0] = 1;
  wide.values[0] = leaf();
  KEEP;
  return static_cast<int>(wide.values[0]) + bytes[0];
}

static void on_signal(int) {
  leaf();
  KEEP;
}
NOINLINE int in_signal(int alternate) {
  static thread_local char* room = nullptr;
  stack_t stack = {}, before = {};
  if (alternate) {
    if (!room) room = static_cast<char*>(malloc(1 << 17));
    stack.ss_sp = room;
    stack.ss_size = 1 << 17;
    sigaltstack(&stack, &before);
  }
  struct sigaction action = {}, old = {};
  action.sa_handler = on_signal;
  action.sa_flags = alternate ? SA_ONSTACK : 0;
  sigaction(SIGUSR1, &action, &old);
  pthread_kill(pthread_self(), SIGUSR1);
  sigaction(SIGUSR1, &old, nullptr);
  if (alternate) {
    stack.ss_flags = SS_DISABLE;
    sigaltstack(&stack, nullptr);
  }
  KEEP;
  return 1;
}

static int compare(const void*, const void*) { return leaf() - 1; }
NOINLINE int through_qsort(int) {
  int two[2] = {1, 2};
  qsort(two, 2, sizeof two[0], compare);
  KEEP;
  return two[0];
}

// Its caller is left by a jump: it is not on the stack while leaf() runs.
NOINLINE int tail_target(int depth) {
  int below = leaf();
  KEEP;
  return below + depth;
}
NOINLINE int tail_caller(int depth) { return tail_target(depth + 1); }

using Callback = int (*)(int);
// Into Python, and from there perhaps here again.
NOINLINE int bounce(Callback callback, int depth) {
  int below = callback(depth);
  KEEP;
  return below + 1;
}

}  // extern "C"

struct Cleans {
  NOINLINE ~Cleans() {
    leaf();
    KEEP;
  }
};
NOINLINE static int throws(int depth) {
  Cleans cleans;
  if (depth == 0) throw 42;
  return throws(depth - 1) + 1;
}
extern "C" NOINLINE int exceptions(int inside) {
  try {
    if (inside) return throws(0);
    throw 7;
  } catch (int value) {
    if (!inside) leaf();
    KEEP;
    return value;
  }
}
