// Kernels that were compiled or tuned with Triton outside of torch's compiles: who waited for which, and for how long.
// Times are from samples and waits of the calling thread; names from Triton samples.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "symbolizer/profile/analysis.h"

namespace dynprof {

// What Triton does for a kernel.
enum class TritonStage : std::uint8_t {
  kNone,
  kPasses,     // from Python to Triton's GPU code: parsing, its passes, its cache
  kLlvm,       // LLVM, to the assembler's input
  kAssembler,  // ptxas, lld
  kTuning,     // runs of a configuration
  kCount,
};
inline constexpr std::size_t kTritonStages = static_cast<std::size_t>(TritonStage::kCount);
const char* triton_stage_text(TritonStage stage);  // "passes", "LLVM", ...

struct TritonRow {
  std::int32_t pid = 0;
  std::string_view kernel;  // "": it could not be read
  // The innermost frame that called it and is neither Triton's nor torch's; 0: there is none.
  FrameId caller = 0;
  std::uint64_t compilations = 0;  // seen, at least
  std::uint64_t stall_ns = 0;      // of the calling threads, on a CPU, waiting and preempted
  std::uint64_t longest_ns = 0;    // without a break
  std::array<std::uint64_t, kTritonStages> ns{};
  std::uint64_t of(TritonStage stage) const { return ns[static_cast<std::size_t>(stage)]; }
};

// "serve.py:42", "-": there is no caller.
std::string caller_place(const ResolvedFrames& frames, FrameId caller);

// Longest stall first. The analysis must outlive them.
std::vector<TritonRow> triton_rows(const Analysis& analysis);

}  // namespace dynprof
