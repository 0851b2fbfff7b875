#include "symbolizer/compare/compare_page.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "symbolizer/export/html/flame_data.h"
#include "symbolizer/export/html/page.h"
#include "symbolizer/export/html/report_page.h"
#include "symbolizer/report/rows.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxRows = 500;

PageCell nanoseconds(double ns) { return static_cast<std::int64_t>(std::llround(ns)); }

PageRow row_of(const CompareTable& table, const CompareRow& row) {
  PageRow line{
      {row.name, nanoseconds(row.a_ns), nanoseconds(row.b_ns), nanoseconds(row.change_ns())}};
  line.cells.push_back(row.a_ns > 0 && row.b_ns > 0 ? PageCell{row.b_ns / row.a_ns} : PageCell{});
  line.cells.push_back(static_cast<std::int64_t>(row.a_count));
  line.cells.push_back(static_cast<std::int64_t>(row.b_count));
  if (table.times != CompareTimes::kExact)
    line.cells.push_back(std::string(row.significant ? "yes" : "no"));
  line.faint = !row.significant;
  return line;
}

PageTable table_of(const CompareTable& table) {
  PageTable shown{table.id, table.title};
  const std::string per = table.times == CompareTimes::kSampledPerSec ? "/s" : "";
  shown.note = table.note;
  if (table.times != CompareTimes::kExact)
    shown.note += " Faint rows: chance may have made the difference, by the counts of samples.";
  shown.columns = {{"Name", ColumnType::kText},
                   {"A" + per, ColumnType::kSeconds},
                   {"B" + per, ColumnType::kSeconds},
                   {"B − A" + per, ColumnType::kChange},
                   {"B / A", ColumnType::kFactor},
                   {table.count + " A", ColumnType::kCount},
                   {table.count + " B", ColumnType::kCount}};
  if (table.times != CompareTimes::kExact) shown.columns.push_back({"Beyond chance"});
  if (table.rows.size() > 1) shown.rows.push_back(row_of(table, table.total));
  for (const CompareRow& row : table.rows) {
    if (shown.rows.size() == kMaxRows) {
      shown.left_out = table.rows.size() - kMaxRows + 1;
      break;
    }
    shown.rows.push_back(row_of(table, row));
  }
  return shown;
}

}  // namespace

Result<void> write_comparison(const Analysis& a, const Analysis& b, const Comparison& comparison,
                              const std::string& a_name, const std::string& b_name,
                              ByteSink& sink) {
  Page page;
  page.title = fmt::format("{} and {}", a_name, b_name);
  page.sides = {a_name, b_name};
  PageTable facts{"facts", "Comparison"};
  facts.columns = {{"What"}, {"A: " + a_name}, {"B: " + b_name}};
  for (const Comparison::Fact& fact : comparison.facts)
    facts.rows.push_back({{fact.title, fact.a, fact.b}});
  page.tables.push_back(std::move(facts));
  for (const std::string& note : comparison.notes) page.summary.emplace_back("Note", note);
  for (const CompareTable& table : comparison.tables) page.tables.push_back(table_of(table));
  FlameData flame(/*by_name=*/true);
  flame.add(a, {}, 0);
  flame.add(b, {}, 1);
  flame.prune();
  page.flame = &flame;
  const ReportOptions options;
  for (const auto& [name, analysis] : {std::pair("A", &a), std::pair("B", &b)})
    for (const std::string& line : about_lines(select_samples(*analysis, options)))
      page.about.push_back(fmt::format("{}: {}", name, line));
  return write_page(page, sink);
}

}  // namespace dynprof
