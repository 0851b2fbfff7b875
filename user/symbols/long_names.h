// C++ names whose text might be too long for this process (symbolizer/symbols/demangle.h): each is demangled by
// a confined process, which ends where a hostile name takes too much memory or time.
#pragma once

#include <memory>
#include <string>

namespace dynprof {

// `dynprof-bpf long-name`, which no user calls: demangles the name that is its request.
inline constexpr const char* kNameHelperVerb = "long-name";

// Returns the exit status; descriptors as run_confined gives them.
int run_name_helper();

// For set_long_names; to be called by several threads.
class LongNames {
 public:
  // Of these per recording or report: a recording of a compile has some ten.
  static constexpr int kMost = 500;
  static constexpr int kMostFailures = 5;

  // `program`: whose verb kNameHelperVerb is run_name_helper.
  explicit LongNames(std::string program);

  // "": the process failed, or there were too many names or failures.
  std::string operator()(const std::string& mangled);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace dynprof
