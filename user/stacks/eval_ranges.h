// Where in a process CPython's interpreter loop is: a native frame in it corresponds to a call of Python
// code. A set of ranges: the compiler splits rarely used parts off the function.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dynprof {

class EvalRanges {
 public:
  EvalRanges() = default;
  explicit EvalRanges(std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges);
  // From the symbols of the file that holds the interpreter; empty when it has none, nullopt when the
  // process cannot be read (any more).
  static std::optional<EvalRanges> find(pid_t pid, const std::string& image_path);

  bool contains(std::uint64_t address) const;
  bool empty() const { return ranges_.empty(); }

 private:
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges_;  // begin and end, ascending
};

}  // namespace dynprof
