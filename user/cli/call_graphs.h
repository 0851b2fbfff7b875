// The pictures in DIR/compiles: one SVG beside each profile, within limits for all of them together.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

#include "symbolizer/export/callgraph.h"
#include "user/cli/output_directory.h"
#include "user/cli/terminal.h"

namespace dynprof {

struct CallGraphLimits {
  std::size_t count = 200;
  std::chrono::milliseconds time{120'000};  // begins with the first one
};

class CallGraphs {
 public:
  // Says in one line if the programs that draw are missing. `directory` has the profiles.
  CallGraphs(const OutputDirectory& directory, Terminal& terminal, const CallGraphLimits& limits);

  bool tools_found() const { return tools_.has_value(); }
  // STEM.svg from STEM.profile; nothing once a limit is reached.
  void draw(const std::string& stem);
  std::size_t drawn() const { return drawn_; }
  // Says how many were left out. True if all were drawn.
  bool finish();

 private:
  const OutputDirectory& directory_;
  Terminal& terminal_;
  CallGraphLimits limits_;
  std::optional<CallgraphTools> tools_;
  std::chrono::steady_clock::time_point deadline_;
  std::size_t drawn_ = 0;
  std::size_t failed_ = 0;
  std::size_t left_out_ = 0;
};

}  // namespace dynprof
