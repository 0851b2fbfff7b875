// Names of code generated at run time, as its generator wrote them: /tmp/perf-PID.map, lines "START SIZE name"
// in hex. The file is the target's: only a regular one of its own user or root, which the target could
// read too, is read, bounded, and what is not such a line is passed over (the last one may be half written).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "symbolizer/base/unique_fd.h"

namespace dynprof {

// In the target's own file system, by its own pid; invalid when there is none. It can be read after the target
// has ended.
UniqueFd open_perf_map(pid_t pid);

class PerfMap {
 public:
  static constexpr std::size_t kMaxBytes = std::size_t{64} << 20;
  static constexpr std::size_t kMaxEntries = 1'000'000;

  static PerfMap read(int fd);
  static PerfMap parse(std::string_view text);
  // The latest line that covers the address.
  std::optional<std::string> find(std::uint64_t address) const;
  std::size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    std::uint64_t start = 0;
    std::uint64_t size = 0;
    std::uint32_t line = 0;
    std::string name;
  };
  std::vector<Entry> entries_;  // by start, then line
};

}  // namespace dynprof
