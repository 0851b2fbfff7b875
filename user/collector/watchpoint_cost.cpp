#include "user/collector/watchpoint_cost.h"

#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "user/collector/clock.h"
#include "user/collector/perf_event.h"

namespace dynprof {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kPages = 128;
constexpr int kRounds = 8;

// The time of one fault on each page of fresh memory; 0: there is no memory.
std::uint64_t time_faults() {
  void* memory =
      mmap(nullptr, kPages * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 0;
  madvise(memory, kPages * kPage, MADV_NOHUGEPAGE);
  auto* bytes = static_cast<volatile char*>(memory);
  std::uint64_t begin = monotonic_ns();
  for (std::size_t page = 0; page < kPages; ++page) bytes[page * kPage] = 1;
  std::uint64_t end = monotonic_ns();
  munmap(memory, kPages * kPage);
  return end - begin;
}

}  // namespace

double watchpoint_cost() {
  static std::uint64_t watched;
  auto event = open_write_watchpoint(0, reinterpret_cast<std::uint64_t>(&watched));
  if (!event) return 1;
  // The quickest of some rounds is the one nothing came between.
  std::uint64_t bare = std::numeric_limits<std::uint64_t>::max(), armed = bare;
  for (int round = 0; round < kRounds; ++round) {
    bare = std::min(bare, time_faults());
    ioctl(event->get(), PERF_EVENT_IOC_ENABLE, 0);
    armed = std::min(armed, time_faults());
    ioctl(event->get(), PERF_EVENT_IOC_DISABLE, 0);
  }
  return bare == 0 ? 1 : static_cast<double>(armed) / static_cast<double>(bare);
}

}  // namespace dynprof
