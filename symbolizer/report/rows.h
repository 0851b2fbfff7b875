// Rows of the report's tables, for outputs that are no text (symbolizer/export/html). Texts are the
// target's, not escaped.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "symbolizer/attribution/compile_modules.h"
#include "symbolizer/attribution/gpu_summary.h"
#include "symbolizer/attribution/process_jobs.h"
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
  std::uint64_t wait_ns = 0;  // that threads waited at it, but for threads without work
};
// Most time first, CPU and waiting.
std::vector<UserLineRow> user_line_rows(const Selection& selection);
// "train.py:92"
std::string user_line_place(const ResolvedFrame& frame);

// An nn.Module with those inside it.
struct ModuleRow {
  std::string path;
  std::uint64_t total_ns = 0, own_ns = 0;
  std::array<std::uint64_t, kLineUses.size()> ns{};  // of the total, by use
  std::uint64_t of(LineUse use) const { return ns[static_cast<std::size_t>(use) - 1]; }
};
struct ModuleRows {
  std::uint64_t sum_ns = 0;  // of all modules
  std::uint64_t left_out = 0;
  std::vector<ModuleRow> rows;  // each right below the one it is in; "blocks.2" before "blocks.10"
};
// At most `most`, those with most time; none with less than a hundredth of all.
ModuleRows module_rows(const Selection& selection, std::size_t most);

// Waits by what for, thread name and innermost line of Python.
struct WaitRow {
  std::string_view what;  // its meaning, else the kind of system call
  std::string name;       // of the thread
  bool idle = false;      // a thread without work
  FrameId frame = 0;
  bool has_frame = false;
  std::uint64_t ns = 0;
  std::uint64_t count = 0;
};
struct WaitSums {
  struct Sum {
    std::uint64_t ns = 0, count = 0;
  };
  std::map<std::string_view, Sum> by_what;
  std::uint64_t runnable_ns = 0, all_ns = 0, with_stack_ns = 0;
  std::vector<WaitRow> rows;  // longest first, threads without work last
};
WaitSums sum_waits(const Selection& selection);

// Jobs of child processes that do the same for one compile.
struct ChildProcessRow {
  std::string work;  // "kernel cpp_fused_add_0", "one-off: precompiled header", "python train.py"
  CompileIndex compile = kNoCompile;
  std::uint64_t count = 0, cpu_ns = 0, wall_ns = 0;
  std::uint64_t peak_bytes = 0;  // of its largest process; 0: not known
};
// Most CPU time first.
std::vector<ChildProcessRow> process_rows(const ProcessTree& tree, const ProcessJobs& jobs);

// "Memcpy HtoD", or the kernel's name.
std::string gpu_work_name(const Tables& tables, const GpuKernelRow& row);
// Where the kernel is not known, in parentheses: "(launched by libcublasLt.so.12)", "(cuMemcpyAsync)".
std::string gpu_work_name(const GpuBareRow& row);

}  // namespace dynprof
