// The comparison as text.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "symbolizer/base/text.h"
#include "symbolizer/compare/compare.h"
#include "symbolizer/report/sections.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxRows = 15;
constexpr std::size_t kFactWidth = 36;
constexpr std::size_t kNumber = 10;

// All times of a table in one unit: numbers below each other compare.
struct Unit {
  const char* name;
  double ns;
  int digits;
};
Unit unit_of(const CompareTable& table) {
  const double most = std::max(table.total.a_ns, table.total.b_ns);
  if (table.times != CompareTimes::kSampledPerSec && most < 1e6) return {"us", 1e3, 1};
  if (table.times == CompareTimes::kSampledPerSec || most < 1e8) return {"ms", 1e6, 2};
  return {"s", 1e9, 3};
}

std::string factor(const CompareRow& row) {
  if (row.a_ns == 0) return row.b_ns == 0 ? "-" : "new";
  if (row.b_ns == 0) return "gone";
  const double times = row.b_ns / row.a_ns;
  return times < 100 ? fmt::format("{:.2f}x", times) : fmt::format("{:.0f}x", times);
}

void append_row(std::string& out, const CompareRow& row, const Unit& unit) {
  std::string line = fmt::format(
      "{} {:>{}.{}f} {:>{}.{}f} {:>+{}.{}f} {:>7} {:>15}  ", row.significant ? ' ' : '~',
      row.a_ns / unit.ns, kNumber, unit.digits, row.b_ns / unit.ns, kNumber, unit.digits,
      row.change_ns() / unit.ns, kNumber, unit.digits, factor(row),
      fmt::format("{} -> {}", grouped(row.a_count), grouped(row.b_count)));
  const std::size_t used = display_width(line);
  out += line + cut(row.name, used < kReportColumns - 8 ? kReportColumns - used : 8, false) + '\n';
}

void append_table(std::string& out, const CompareTable& table) {
  const Unit unit = unit_of(table);
  out += "#\n";
  append_comment(out, table.title + ". " + table.note);
  out += "#\n";
  const std::string per = table.times == CompareTimes::kSampledPerSec ? "/s" : "";
  out += fmt::format(
      "# {:>{}} {:>{}} {:>{}} {:>7} {:>15}  Name\n", fmt::format("A {}{}", unit.name, per), kNumber,
      fmt::format("B {}{}", unit.name, per), kNumber, "B - A", kNumber, "B / A", table.count);
  std::size_t shown = 0, proven = 0;
  for (const CompareRow& row : table.rows) proven += row.significant ? 1 : 0;
  for (const CompareRow& row : table.rows) {
    if (shown == kMaxRows) break;
    // Of those that chance may have made, the largest few.
    if (!row.significant && shown >= std::max<std::size_t>(proven, 5)) break;
    append_row(out, row, unit);
    ++shown;
  }
  if (const std::size_t more = table.rows.size() - shown; more > 0) {
    std::string text = fmt::format("{} more rows", grouped(more));
    if (table.times != CompareTimes::kExact)
      text += fmt::format(", {} of them beyond chance", grouped(proven - std::min(proven, shown)));
    append_comment(out, text);
  }
  if (table.rows.size() > 1) append_row(out, table.total, unit);
}

}  // namespace

std::string render_comparison(const Comparison& comparison, const std::string& a,
                              const std::string& b) {
  std::string out =
      fmt::format("# dynprof-bpf compare: A {}, B {}\n", cut(a, 32, true), cut(b, 32, true));
  out += fmt::format("  {:<22} {} {}\n", "", cell("A", kFactWidth), "B");
  for (const Comparison::Fact& fact : comparison.facts)
    out += fmt::format("  {} {} {}\n", cell(fact.title, 22), cell(fact.a, kFactWidth),
                       cut(fact.b, kFactWidth));
  for (const std::string& note : comparison.notes) append_item(out, "Note", note);
  const bool sampled =
      std::any_of(comparison.tables.begin(), comparison.tables.end(),
                  [](const auto& table) { return table.times != CompareTimes::kExact; });
  if (sampled) {
    out += "#\n";
    append_comment(
        out,
        "~: chance may have made the difference, by the counts of samples (as Poisson's; of "
        "the rows without it, one in twenty is expected to be chance).");
  }
  for (const CompareTable& table : comparison.tables) append_table(out, table);
  return out;
}

}  // namespace dynprof
