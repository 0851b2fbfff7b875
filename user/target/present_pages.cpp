#include "user/target/present_pages.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "symbolizer/base/unique_fd.h"

namespace dynprof {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kPresent = std::uint64_t{1} << 63;  // in /proc/PID/pagemap
constexpr int kAbsent = -ENOENT;
// Larger ranges than the kernel is asked about at once count as not present.
constexpr std::uint64_t kMaxPages = 1024;
constexpr std::uint64_t kKnownForMs = 100;

// 0: more than we ask about.
std::uint64_t page_count(const RemoteRange& range) {
  if (range.into.empty()) return 1;
  const std::uint64_t last = range.address + range.into.size() - 1;
  if (last < range.address) return 0;
  const std::uint64_t count = last / kPage - range.address / kPage + 1;
  return count > kMaxPages ? 0 : count;
}

std::uint64_t coarse_ms() {
  timespec now = {};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1000 +
         static_cast<std::uint64_t>(now.tv_nsec) / 1'000'000;
}

}  // namespace

const std::vector<bool>& PresentPages::of(pid_t pid, std::span<const RemoteRange> ranges) {
  const std::uint64_t now_ms = coarse_ms();
  present_.assign(ranges.size(), true);
  unknown_.clear();
  for (std::size_t i = 0; i < ranges.size(); ++i)
    if (!known(pid, ranges[i], now_ms)) unknown_.push_back(i);
  if (!unknown_.empty()) ask(pid, ranges, now_ms);
  return present_;
}

PresentPages::Known& PresentPages::place_of(pid_t pid, std::uint64_t page) {
  const std::uint64_t mixed =
      (page / kPage + static_cast<std::uint64_t>(pid)) * 0x9e3779b97f4a7c15;  // 2^64 / golden ratio
  return known_[mixed >> 54];
}

bool PresentPages::known(pid_t pid, const RemoteRange& range, std::uint64_t now_ms) {
  const std::uint64_t first = range.address / kPage * kPage;
  const std::uint64_t count = page_count(range);
  for (std::uint64_t i = 0; i < count; ++i) {
    const Known& place = place_of(pid, first + i * kPage);
    if (place.pid != pid || place.page != first + i * kPage || place.until_ms < now_ms)
      return false;
  }
  return count != 0;
}

void PresentPages::ask(pid_t pid, std::span<const RemoteRange> ranges, std::uint64_t now_ms) {
  pages_.clear();
  for (const std::size_t index : unknown_) {
    const std::uint64_t first = ranges[index].address / kPage * kPage;
    for (std::uint64_t i = 0; i < page_count(ranges[index]); ++i)
      pages_.push_back(reinterpret_cast<void*>(first + i * kPage));
  }
  states_.assign(pages_.size(), kAbsent);
  if (!ask_by_call(pid) && !ask_by_file(pid)) return;
  std::size_t at = 0;
  for (const std::size_t index : unknown_) {
    const std::uint64_t count = page_count(ranges[index]);
    bool all = count != 0;
    for (const std::size_t end = at + count; at < end; ++at) {
      if (states_[at] < 0) {
        all = false;
        continue;
      }
      const auto page = reinterpret_cast<std::uint64_t>(pages_[at]);
      place_of(pid, page) = {page, now_ms + kKnownForMs, pid};
    }
    present_[index] = all;
  }
}

// Without places to move them to, move_pages says where pages are: for many of them at once.
bool PresentPages::ask_by_call(pid_t pid) {
  if (!call_allowed_) return false;
  if (::syscall(SYS_move_pages, pid, pages_.size(), pages_.data(), nullptr, states_.data(), 0) == 0)
    return true;
  const int problem = errno;
  // It is gone, or about to: reading it fails at once.
  const bool gone = problem == ESRCH || problem == EINVAL;
  std::fill(states_.begin(), states_.end(), gone ? 0 : kAbsent);
  // Not in this kernel, or a seccomp filter forbids it.
  if (problem == ENOSYS || problem == EPERM) call_allowed_ = false;
  return gone;
}

bool PresentPages::ask_by_file(pid_t pid) {
  if (!file_allowed_) return false;
  const UniqueFd pagemap(
      ::open(fmt::format("/proc/{}/pagemap", pid).c_str(), O_RDONLY | O_CLOEXEC));
  if (!pagemap) {
    // Where it is missing the kernel was built without.
    file_allowed_ = errno != ENOENT || ::kill(pid, 0) != 0;
    return file_allowed_;
  }
  for (std::size_t i = 0; i < pages_.size(); ++i) {
    std::uint64_t entry = 0;
    const auto number = reinterpret_cast<std::uint64_t>(pages_[i]) / kPage;
    if (::pread(pagemap.get(), &entry, sizeof entry, static_cast<off_t>(number * sizeof entry)) ==
        sizeof entry)
      states_[i] = (entry & kPresent) != 0 ? 0 : kAbsent;
  }
  return true;
}

}  // namespace dynprof
