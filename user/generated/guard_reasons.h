// Why a guard exists: the user's line that asked for it. torch keeps it in C++, as a list of texts for
// each guard ("L['k'] == 2      # return x * k  # model.py:15 in scale"), which nothing of Python's
// leads to but the garbage collector's lists.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <unordered_map>

#include "user/generated/python_objects.h"

namespace dynprof {

class GuardReasons {
 public:
  // `lists`: all lists of the target; `guards`: the code parts whose reasons are wanted.
  void read(PythonObjects& python, std::span<const std::uint64_t> lists,
            const std::set<std::string>& guards);

  // "return x * k  # model.py:15 in scale"; "" when there is none, or guards of the same text exist
  // for several reasons: then they cannot be distinguished.
  std::string reason(const std::string& guard) const;

 private:
  void read_batch(PythonObjects& python, std::span<const std::uint64_t> lists,
                  const std::set<std::string>& guards);
  void note(std::string_view text, const std::set<std::string>& guards);

  std::unordered_map<std::string, std::set<std::string>> reasons_;
};

// Splits what torch prints of a guard: the guard, and the reason behind its first '#'.
struct VerboseGuard {
  std::string guard;
  std::string reason;
};
VerboseGuard split_verbose_guard(std::string_view text);

}  // namespace dynprof
