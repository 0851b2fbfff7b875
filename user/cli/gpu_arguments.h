// The options of `record` for GPU work.
#pragma once

#include <string>

#include "symbolizer/base/result.h"
#include "user/session/session_options.h"

namespace CLI {
class App;
}

namespace dynprof {

struct GpuTexts {
  std::string mode = "auto", ranks = "all";
  bool all_launch_stacks = false, sampled_launch_stacks = false;
};

void add_gpu_options(CLI::App& verb, GpuTexts& texts);
// Errors are of usage.
Result<void> finish_gpu_options(const GpuTexts& texts, SessionOptions& session);

}  // namespace dynprof
