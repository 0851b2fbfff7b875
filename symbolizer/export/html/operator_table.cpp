#include <algorithm>

#include "symbolizer/export/html/tables.h"
#include "symbolizer/report/operator_rows.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxRows = 500;

PageCell percent_of(std::uint64_t part, std::uint64_t whole) {
  if (whole == 0) return {};
  return 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

PageTable operator_table(const Selection& selection) {
  PageTable table{"operators", "Operators, sampled"};
  OperatorRows operators = operator_rows(selection);
  if (operators.rows.empty()) return table;
  table.note =
      "Torch's operators on the native frames of sampled stacks: times are estimates, and calls "
      "are "
      "not counted.";
  table.columns = {{"Operator"},
                   {"Self", ColumnType::kSeconds, "CPU time in it and in no operator inside it"},
                   {"Share", ColumnType::kPercent, "of all CPU time that was sampled"},
                   {"Low", ColumnType::kPercent, "of the share, with 95% confidence"},
                   {"High", ColumnType::kPercent, "of the share, with 95% confidence"},
                   {"Total", ColumnType::kSeconds, "with operators inside it"},
                   {"Wait", ColumnType::kSeconds, "off the CPU in it"},
                   {"Samples", ColumnType::kCount},
                   {"In", ColumnType::kText, "where most of it was"},
                   {"Line", ColumnType::kPlace, "the user's, with most of it"}};
  if (operators.rows.size() > kMaxRows) {
    table.left_out = operators.rows.size() - kMaxRows;
    operators.rows.resize(kMaxRows);
  }
  for (const OperatorRow& row : operators.rows) {
    const OperatorSums& sums = row.sums;
    const ShareInterval interval = share_interval(sums.self_samples, operators.all_samples);
    table.rows.push_back(
        {{row.name->text(), cell_of(sums.self_ns), percent_of(sums.self_ns, operators.all_ns),
          100 * interval.low, 100 * interval.high, cell_of(sums.total_ns), cell_of(sums.wait_ns),
          cell_of(sums.self_samples), row.places.front().place.text(), row.lines.front().line}});
  }
  return table;
}

}  // namespace dynprof
