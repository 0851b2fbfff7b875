// Rows of the report's tables, for outputs that are no text (symbolizer/export/html). Texts are the
// target's, not escaped.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "symbolizer/attribution/gpu_summary.h"
#include "symbolizer/attribution/process_tree.h"
#include "symbolizer/report/findings.h"
#include "symbolizer/report/sections.h"

namespace dynprof {

// What the options leave of the samples. The options must outlive it.
Selection select_samples(const Analysis& analysis, const ReportOptions& options);

// Title and text of each answer of the summary, in its order.
std::vector<std::pair<std::string, std::string>> summary_items(const Selection& selection,
                                                               const Findings& findings);

// A line of user code, the innermost on a stack.
struct UserLineRow {
  FrameId frame = 0;               // one of those on the line
  std::uint64_t ns = 0;            // of CPU time
  std::uint64_t compiling_ns = 0;  // of that, in compiles
  std::uint64_t samples = 0;
  std::uint64_t compiling_samples = 0;
};
// Most first.
std::vector<UserLineRow> user_line_rows(const Selection& selection);
// "train.py:92"
std::string user_line_place(const ResolvedFrame& frame);

// Waits by kind, thread name and innermost line of Python.
struct WaitRow {
  WaitKind kind = WaitKind::kOther;
  ThreadId thread = 0;
  FrameId frame = 0;
  bool has_frame = false;
  std::uint64_t ns = 0;
  std::uint64_t count = 0;
};
struct WaitSums {
  std::array<std::uint64_t, kWaitKinds> ns{};
  std::array<std::uint64_t, kWaitKinds> count{};
  std::uint64_t runnable_ns = 0, all_ns = 0, with_stack_ns = 0;
  std::vector<WaitRow> rows;  // longest first
};
WaitSums sum_waits(const Selection& selection);

// Child processes of one title, for one compile.
struct ChildProcessRow {
  std::string title;
  CompileIndex compile = kNoCompile;
  JoinRule rule = JoinRule::kNone;
  std::uint64_t count = 0, cpu_ns = 0, samples = 0, wall_ns = 0;
};
// Most CPU time first.
std::vector<ChildProcessRow> process_rows(const ProcessTree& tree);

// "Memcpy HtoD", or the kernel's name.
std::string gpu_work_name(const Tables& tables, const GpuKernelRow& row);

}  // namespace dynprof
