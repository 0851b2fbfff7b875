// Samples one process while it is watched, for the hottest functions of `top`: by the BPF programs of a recording,
// without probes and native stacks, so that it costs the process no more than a recording does. Nothing is loaded
// before begin().
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "user/top/reading.h"

namespace dynprof {

class FunctionSampler {
 public:
  // Its thread keeps the rights to sample that this one has now.
  FunctionSampler(pid_t pid, std::vector<std::string> user_packages);
  // A thread that the process keeps from ending is left behind: the program must end soon.
  ~FunctionSampler();
  FunctionSampler(const FunctionSampler&) = delete;
  FunctionSampler& operator=(const FunctionSampler&) = delete;

  // Idempotent.
  void begin();
  // As of half a second ago at most, unless the process delays reads of its memory.
  TopFunctions read() const;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace dynprof
