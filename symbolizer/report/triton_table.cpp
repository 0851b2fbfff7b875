// The report's part about kernels that Triton compiled or tuned outside of torch's compiles; nothing where there are none.
#include <fmt/format.h>

#include <algorithm>

#include "symbolizer/report/sections.h"
#include "symbolizer/report/triton_rows.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxRows = 20;

std::string seconds(std::uint64_t ns) {
  return ns == 0 ? "-" : fmt::format("{:.2f}", static_cast<double>(ns) * 1e-9);
}

}  // namespace

void append_triton(std::string& out, const Selection& selection) {
  const std::vector<TritonRow> rows = triton_rows(selection.analysis);
  if (rows.empty()) return;
  const ResolvedFrames& frames = selection.attribution().frames();
  append_comment(
      out,
      "Triton kernels that were compiled or tuned outside of torch.compile, while their callers "
      "waited. Stall: of the calling threads, on a CPU, waiting and preempted; the longest without "
      "a break. Compiled: compilations seen, at least. Passes: parsing, Triton's passes and its "
      "cache.");
  out += "#\n";
  out +=
      "# Stall s  Longest  Compiled  Passes    LLVM  Assembler  Tuning  Called at             "
      "Kernel\n";
  out +=
      "# .......  .......  ........  ......  ......  .........  ......  ....................  "
      "................\n#\n";
  for (std::size_t i = 0; i < std::min(rows.size(), kMaxRows); ++i) {
    const TritonRow& row = rows[i];
    const std::string kernel = row.kernel.empty() ? std::string("(not read)") : cut(row.kernel, 16);
    out +=
        fmt::format("{:>9}{:>9}{:>10}{:>8}{:>8}{:>11}{:>8}  {}  {}\n", seconds(row.stall_ns),
                    seconds(row.longest_ns), grouped(row.compilations),
                    seconds(row.of(TritonStage::kPasses)), seconds(row.of(TritonStage::kLlvm)),
                    seconds(row.of(TritonStage::kAssembler)), seconds(row.of(TritonStage::kTuning)),
                    cell(caller_place(frames, row.caller), 20, true), kernel);
  }
  if (rows.size() > kMaxRows)
    append_comment(out, fmt::format("{} more kernels, each less", grouped(rows.size() - kMaxRows)));
  out += "#\n";
}

}  // namespace dynprof
