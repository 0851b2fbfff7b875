// What the kernel side counted of one process's runs of compiled regions, as rows of the recording.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "symbolizer/recording/writer.h"
#include "user/kernel/kernel_side.h"

namespace dynprof {

std::string region_name(const dp_region_key& key);

class RunCounts {
 public:
  // What runs: name as in a begin of a run, "" for no compiled code; the code object, 0: not known.
  struct Region {
    std::string name;
    CodeId code = 0;
  };
  // Called once for each region, soon after its first run.
  using Describe = std::function<Region(const dp_region_key&)>;

  explicit RunCounts(const KernelSide& kernel) : kernel_(kernel) {}

  // Runs are counted from now on. What is counted so far was of another process with this pid.
  void begin(pid_t pid, std::uint64_t now_ns);
  // A run that the kernel side did not count.
  void add_one(std::string_view name) { ++more_[std::string(name)]; }
  // Some times a second. Writes where a region is new, so that the recording shows since when it runs, and every
  // ten seconds.
  void tick(std::uint64_t now_ns, const Describe& describe, RecordingWriter& writer);
  // Runs are only counted from then on.
  void lengths_end(std::uint64_t time_ns, const Describe& describe, RecordingWriter& writer);
  // Runs were counted until then.
  void end(std::uint64_t time_ns, RunsThen then, const Describe& describe, RecordingWriter& writer);

 private:
  struct Entry {
    std::size_t index;  // into what the kernel side has
    dp_region_count written;
    Region region;
    bool described = false;
  };
  void find_new();
  bool look(const Describe& describe);
  void write(std::uint64_t end_ns, RunsThen then, RecordingWriter& writer);

  const KernelSide& kernel_;
  pid_t pid_ = 0;
  std::uint64_t begin_ns_ = 0;         // of what is to be written next, 0: nothing is counted
  std::size_t seen_ = 0;               // of what the kernel side has
  std::vector<std::size_t> unfilled_;  // of these, not filled in yet
  std::vector<Entry> entries_;
  std::map<std::string, std::uint64_t> more_;
};

}  // namespace dynprof
