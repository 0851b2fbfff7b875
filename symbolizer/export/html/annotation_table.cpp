#include <algorithm>

#include "symbolizer/export/html/tables.h"
#include "symbolizer/report/annotation_rows.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxRows = 500;

}  // namespace

PageTable annotation_table(const Selection& selection) {
  PageTable table{"annotations", "Annotations"};
  std::vector<AnnotationSums> rows = annotation_rows(selection.analysis);
  if (rows.empty()) return table;
  table.note =
      "Ranges that the program marks (record_function, NVTX, ITT), with exact times, of the whole "
      "recording.";
  table.columns = {
      {"Name"},
      {"Kind"},
      {"Count", ColumnType::kCount},
      {"Total", ColumnType::kSeconds, "a range inside another one of its name counts again"},
      {"Mean", ColumnType::kSeconds},
      {"Longest", ColumnType::kSeconds},
      {"CPU", ColumnType::kSeconds, "of their thread, from samples"},
      {"In compiles", ColumnType::kSeconds, "of that CPU time"},
      {"Open", ColumnType::kCount, "ranges whose end was not seen"}};
  if (rows.size() > kMaxRows) {
    table.left_out = rows.size() - kMaxRows;
    rows.resize(kMaxRows);
  }
  for (const AnnotationSums& row : rows) {
    const std::string name = row.name.empty() ? "(name not read)" : std::string(row.name);
    table.rows.push_back(
        {{name, std::string(annotation_kind_text(row.kind)), cell_of(row.count),
          cell_of(row.total_ns), cell_of(row.total_ns / row.count), cell_of(row.longest_ns),
          cell_of(row.cpu_ns), cell_of(row.compile_ns), cell_of(row.open)}});
  }
  return table;
}

}  // namespace dynprof
