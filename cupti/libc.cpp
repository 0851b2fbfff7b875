#include "cupti/libc.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__)
#define FIRST_GLIBC "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define FIRST_GLIBC "GLIBC_2.17"
#else
#error "which is the first glibc of this machine?"
#endif

extern "C" {
__attribute__((weak)) int first_pthread_create(pthread_t*, const pthread_attr_t*, void* (*)(void*),
                                               void*);
__attribute__((weak)) void* first_dlopen(const char*, int);
__attribute__((weak)) void* first_dlsym(void*, const char*);
}
__asm__(".symver first_pthread_create, pthread_create@" FIRST_GLIBC);
__asm__(".symver first_dlopen, dlopen@" FIRST_GLIBC);
__asm__(".symver first_dlsym, dlsym@" FIRST_GLIBC);

namespace dynprof_cupti {

bool threads_and_libraries_available() {
  return first_pthread_create != nullptr && first_dlopen != nullptr && first_dlsym != nullptr;
}

bool start_thread(void* (*run)(void*)) {
  if (first_pthread_create == nullptr) return false;
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return false;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  // A new thread inherits the mask. sigprocmask leaves out glibc's own two signals: blocking those
  // would hang setuid() in the process.
  sigset_t all, before;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, &before);
  pthread_t thread;
  bool started = first_pthread_create(&thread, &attributes, run, nullptr) == 0;
  sigprocmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  return started;
}

void* open_loaded_library(const char* path) {
  return first_dlopen ? first_dlopen(path, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE) : nullptr;
}

void* open_library(const char* path) {
  return first_dlopen ? first_dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE) : nullptr;
}

void* find_symbol(void* library, const char* name) {
  return first_dlsym && library ? first_dlsym(library, name) : nullptr;
}

namespace {
std::uint64_t clock_ns(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
         static_cast<std::uint64_t>(now.tv_nsec);
}
}  // namespace

std::uint64_t monotonic_ns() { return clock_ns(CLOCK_MONOTONIC); }

// A thread that is preempted between the two clocks would be off by a time slice: the reading that
// took the shortest time counts.
std::uint64_t realtime_offset_ns() {
  constexpr int kReadings = 5;
  std::uint64_t offset = 0, shortest = UINT64_MAX;
  for (int i = 0; i < kReadings; ++i) {
    const std::uint64_t before = monotonic_ns();
    const std::uint64_t realtime = clock_ns(CLOCK_REALTIME);
    const std::uint64_t took = monotonic_ns() - before;
    if (took >= shortest) continue;
    shortest = took;
    offset = realtime - (before + took / 2);
  }
  return offset;
}

std::int32_t thread_id() { return static_cast<std::int32_t>(syscall(SYS_gettid)); }

void* map_pages(std::size_t bytes) {
  int error = errno;
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  errno = error;
  return address == MAP_FAILED ? nullptr : address;
}

void unmap_pages(void* address, std::size_t bytes) {
  int error = errno;
  munmap(address, bytes);
  errno = error;
}

void futex_wait(const void* word, std::uint32_t expected, std::uint64_t timeout_ns) {
  int error = errno;
  timespec timeout{static_cast<time_t>(timeout_ns / 1'000'000'000u),
                   static_cast<long>(timeout_ns % 1'000'000'000u)};
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, &timeout, nullptr, 0);
  errno = error;
}

void futex_wake(const void* word) {
  int error = errno;
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
  errno = error;
}

const char* environment_text(const char* name) {
  const char* text = secure_getenv(name);
  return text && *text ? text : nullptr;
}

// Not strtoull: it looks at the locale.
std::uint64_t environment_number(const char* name, std::uint64_t otherwise) {
  const char* text = environment_text(name);
  if (text == nullptr) return otherwise;
  std::uint64_t value = 0;
  for (; *text; ++text) {
    if (*text < '0' || *text > '9' || value > 1'000'000'000'000'000u) return otherwise;
    value = value * 10 + static_cast<std::uint64_t>(*text - '0');
  }
  return value;
}

}  // namespace dynprof_cupti
