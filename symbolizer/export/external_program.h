// A program of another project, run as a filter: without a shell, with the caller's rights (give up root's
// first), with limits on time, memory and the size of what it writes.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "symbolizer/base/result.h"

namespace dynprof {

// The first executable file `name` in `path` (a PATH), or "". Relative entries are passed over.
std::string find_program(std::string_view path, std::string_view name);

struct ProgramLimits {
  std::chrono::milliseconds time{10'000};
  std::uint64_t output_bytes = 64ULL << 20;
  std::uint64_t memory_bytes = 0;  // of its address space; 0: no limit
};

// Runs `program`, with `arguments` behind its name, until it ends: `input` on its stdin, its stdout to
// `output_fd`, which stays open, its stderr nowhere. The exit status; an error where there is none. After
// an error, what was written is not whole.
Result<int> run_filter(const std::string& program, const std::vector<std::string>& arguments,
                       std::string_view input, int output_fd, const ProgramLimits& limits);

}  // namespace dynprof
