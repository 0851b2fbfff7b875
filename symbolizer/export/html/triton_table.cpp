#include <algorithm>

#include "symbolizer/export/html/tables.h"
#include "symbolizer/report/triton_rows.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxRows = 500;

}  // namespace

PageTable triton_table(const Selection& selection) {
  PageTable table{"triton", "Triton kernels compiled while their callers waited"};
  std::vector<TritonRow> rows = triton_rows(selection.analysis);
  if (rows.empty()) return table;
  table.note =
      "Kernels that Triton compiled or tuned outside of torch.compile, from samples and waits of "
      "the calling threads.";
  table.columns = {
      {"Kernel"},
      {"Called at"},
      {"Stall", ColumnType::kSeconds, "of the calling threads, on a CPU, waiting and preempted"},
      {"Longest", ColumnType::kSeconds, "without a break"},
      {"Compiled", ColumnType::kCount, "compilations seen, at least"},
      {"Passes", ColumnType::kSeconds, "parsing, Triton's passes and its cache"},
      {"LLVM", ColumnType::kSeconds},
      {"Assembler", ColumnType::kSeconds, "ptxas, lld"},
      {"Tuning", ColumnType::kSeconds, "runs of configurations"},
      {"Pid"}};
  if (rows.size() > kMaxRows) {
    table.left_out = rows.size() - kMaxRows;
    rows.resize(kMaxRows);
  }
  for (const TritonRow& row : rows) {
    table.rows.push_back(
        {{row.kernel.empty() ? std::string("(not read)") : std::string(row.kernel),
          row.caller == 0 ? std::string("-")
                          : frame_place(selection.attribution().frames()[row.caller]),
          cell_of(row.stall_ns), cell_of(row.longest_ns), cell_of(row.compilations),
          cell_of(row.of(TritonStage::kPasses)), cell_of(row.of(TritonStage::kLlvm)),
          cell_of(row.of(TritonStage::kAssembler)), cell_of(row.of(TritonStage::kTuning)),
          std::int64_t{row.pid}}});
  }
  return table;
}

}  // namespace dynprof
