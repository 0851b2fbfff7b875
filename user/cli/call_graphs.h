// The pictures in DIR/compiles: one SVG beside each profile, within limits for all of them together.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>

#include "symbolizer/export/graphviz.h"
#include "user/cli/output_directory.h"
#include "user/cli/terminal.h"

namespace dynprof {

struct CallGraphLimits {
  std::size_t count = 200;
  std::chrono::milliseconds time{10'000};  // begins with the first one
};

class CallGraphs {
 public:
  // `dot`: the path of that program.
  CallGraphs(const OutputDirectory& directory, std::string dot, Terminal& terminal,
             const CallGraphLimits& limits);

  // STEM.svg from what `graph` returns, in the DOT language; nothing once a limit is reached. Whether it
  // was drawn.
  bool draw(const std::string& stem, const std::function<std::string()>& graph);
  std::size_t drawn() const { return drawn_; }
  // Says how many were left out.
  void finish();

 private:
  const OutputDirectory& directory_;
  std::string dot_;
  Terminal& terminal_;
  CallGraphLimits limits_;
  std::chrono::steady_clock::time_point deadline_;
  std::size_t drawn_ = 0;
  std::size_t failed_ = 0;
  std::size_t left_out_ = 0;
};

}  // namespace dynprof
