// For bench_wakes.py: samples a process (cpu-clock, kernel and user frames), and reads the samples in one of two ways.
//
//   sample_wakes PID HZ wake     each sample wakes the reader
//   sample_wakes PID HZ poll     the reader looks every 20 ms, and no sample wakes it
//
// Prints `ready`. Only the main thread of the process is sampled.
#define _GNU_SOURCE
#include <linux/perf_event.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { kPages = 64, kPollMs = 20 };

int main(int count, char** words) {
  if (count != 4) {
    fprintf(stderr, "error: three arguments are needed\nhint: sample_wakes PID HZ wake|poll\n");
    return 2;
  }
  const int wake = strcmp(words[3], "wake") == 0;
  struct perf_event_attr event;
  memset(&event, 0, sizeof event);
  event.size = sizeof event;
  event.type = PERF_TYPE_SOFTWARE;
  event.config = PERF_COUNT_SW_CPU_CLOCK;
  event.sample_period = 1000000000ULL / strtoull(words[2], NULL, 10);
  event.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_CALLCHAIN;
  event.watermark = !wake;
  if (wake)
    event.wakeup_events = 1;
  else
    event.wakeup_watermark = 1U << 30;  // more than the buffer holds
  const int fd =
      (int)syscall(SYS_perf_event_open, &event, atoi(words[1]), -1, -1, PERF_FLAG_FD_CLOEXEC);
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  struct perf_event_mmap_page* ring =
      fd < 0 ? MAP_FAILED
             : mmap(NULL, (kPages + 1) * page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (ring == MAP_FAILED) {
    perror("error: cannot sample the process");
    return 1;
  }
  puts("ready");
  fflush(stdout);
  struct pollfd readable = {.fd = fd, .events = POLLIN};
  while (1) {
    if (poll(wake ? &readable : NULL, wake, wake ? -1 : kPollMs) < 0) return 1;
    if (wake && (readable.revents & POLLHUP)) return 0;  // the process has ended
    __atomic_store_n(&ring->data_tail, __atomic_load_n(&ring->data_head, __ATOMIC_ACQUIRE),
                     __ATOMIC_RELEASE);
  }
}
