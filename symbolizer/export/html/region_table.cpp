#include <optional>
#include <string>

#include "symbolizer/export/html/tables.h"
#include "symbolizer/report/region_rows.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxRows = 500;

PageCell cell_of_ns(double ns) {
  return ns > 0 ? cell_of(static_cast<std::uint64_t>(ns)) : PageCell{};
}
PageCell cell_of_part(std::optional<double> part) {
  return part ? PageCell(100 * *part) : PageCell{};
}

std::string counted_text(const RegionRow& row) {
  if (!row.complete) return "not all";
  return row.timed ? "all" : "all, not all timed";
}

}  // namespace

PageTable region_table(const Selection& selection) {
  PageTable table{"runs", "Compiled regions"};
  std::vector<RegionRow> rows = region_rows(selection.analysis);
  if (rows.empty()) return table;
  table.note = "Runs of compiled code.";
  const bool several = selection.analysis.regions().processes().size() > 1;
  table.columns = {
      {"Trace id"},
      {"Function"},
      {"Share", ColumnType::kPercent, "of its process's time, in a run and in no region inside it"},
      {"CPU", ColumnType::kPercent, "of all CPU time, from samples"},
      {"Calls", ColumnType::kCount},
      {"Counted", ColumnType::kText,
       "not all: runs were too frequent, there were more, and times are of those counted; not all "
       "timed: times are of the first ones, and shares assume the same times since"},
      {"Calls/s", ColumnType::kCount},
      {"Per run", ColumnType::kSeconds, "mean, with everything inside but no compile"},
      {"Search", ColumnType::kSeconds, "torch's cache lookup and guards before a run"},
      {"Outside", ColumnType::kPercent,
       "of the region's CPU time, what is not in its compiled graph: rewritten bytecode, torch's "
       "wrappers"}};
  if (rows.size() > kMaxRows) {
    table.left_out = rows.size() - kMaxRows;
    rows.resize(kMaxRows);
  }
  if (several) table.columns.push_back({"Pid"});
  for (const RegionRow& row : rows) {
    const RegionStats& stats = *row.stats;
    table.rows.push_back(
        {{row.id(), std::string(row.function), cell_of_part(row.share), cell_of_part(row.cpu_share),
          cell_of(stats.calls), counted_text(row),
          row.complete ? cell_of(static_cast<std::uint64_t>(stats.calls_per_second())) : PageCell{},
          cell_of_ns(stats.time_per_run()), cell_of_ns(stats.lookup_per_run()),
          cell_of_part(row.outside)}});
    if (several) table.rows.back().cells.emplace_back(std::int64_t{stats.pid});
  }
  return table;
}

}  // namespace dynprof
