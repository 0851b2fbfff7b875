#include "user/process/memory_watch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include "symbolizer/base/unique_fd.h"
#include "user/target/clock.h"

namespace dynprof {
namespace {

// Of a CPU: a reading is followed by a pause of so many times what it took.
constexpr std::uint64_t kTimesAsLong = 300;

bool any_compiles(const ProcessTable& processes) {
  return std::any_of(processes.all().begin(), processes.all().end(),
                     [](const auto& entry) { return entry.second.tracer().watch().compiling(); });
}

}  // namespace

std::uint64_t resident_bytes(std::int32_t pid) {
  const UniqueFd file(::open(fmt::format("/proc/{}/statm", pid).c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return 0;
  std::array<char, 128> buffer{};
  const ssize_t size = ::read(file.get(), buffer.data(), buffer.size());
  if (size <= 0) return 0;
  std::string_view text(buffer.data(), static_cast<std::size_t>(size));
  // "size resident shared ...", in pages.
  text.remove_prefix(std::min(text.find(' ') + 1, text.size()));
  std::uint64_t pages = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), pages);
  if (problem != std::errc() || pages > (std::uint64_t{1} << 40)) return 0;
  return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

void MemoryWatch::tick(std::uint64_t now_ns, const ProcessTable& processes,
                       RecordingWriter& writer) {
  if (now_ns < next_ns_ || !any_compiles(processes)) return;
  const std::uint64_t begin_ns = monotonic_ns();
  std::size_t left = kMaxProcesses;
  for (const auto& [pid, process] : processes.all()) {
    if (!process.python()) continue;  // of a compiler the kernel's own peak is known when it ends
    if (left-- == 0) break;
    if (const std::uint64_t bytes = resident_bytes(pid); bytes != 0)
      writer.memory_sample({.time_ns = monotonic_ns(), .pid = pid, .bytes = bytes});
  }
  next_ns_ = now_ns + std::max(kPeriodNs, kTimesAsLong * (monotonic_ns() - begin_ns));
}

}  // namespace dynprof
