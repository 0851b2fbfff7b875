// The compiles that were open when the recording, or their process, ended: for how long, and where they were.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "symbolizer/profile/analysis.h"

namespace dynprof {

struct StillOpen {
  CompileIndex compile = kNoCompile;
  std::uint64_t age_ns = 0;
  bool least = false;          // its begin is not known: it is at least so old
  bool process_ended = false;  // it was open when its process ended, not when the recording did
  std::string phase{};         // in words: "Inductor", "C++/Triton compilers"; "": not known
  // The user's line it was at, and what it did with it; the line is 0 or the file "" where that is not known.
  LineUse use = LineUse::kTracing;
  std::string file{}, function{};
  std::int32_t line = 0;
  std::uint32_t node = 0, nodes = 0;  // of the graph that Inductor lowered; 0: not known
  // What its thread waited for at the end, in words, and for how long; "": it did not wait, or not known.
  std::string wait{};
  std::uint64_t wait_ns = 0;
};

// At most 64, the oldest first.
std::vector<StillOpen> still_open(const Analysis& analysis);

// "3/0 forward model.py:40 for 20 min 14 s (began before the recording), in Inductor: lowering model.py:88, node 512 of
// 2,040; waiting for 3 g++ for 12.0 s"
std::string still_open_text(const Analysis& analysis, const StillOpen& open);

}  // namespace dynprof
