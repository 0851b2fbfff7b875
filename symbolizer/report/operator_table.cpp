// The report's part about torch's operators; nothing where no native frame shows one.
#include <fmt/format.h>

#include <algorithm>

#include "symbolizer/base/text.h"
#include "symbolizer/report/operator_rows.h"
#include "symbolizer/report/sections.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxRows = 20;

// Half of the interval, in percentage points.
std::string uncertainty(const OperatorSums& sums, std::uint64_t samples) {
  const ShareInterval interval = share_interval(sums.self_samples, samples);
  return fmt::format("{:.1f}", 50 * (interval.high - interval.low));
}

std::string place_text(const OperatorRow& row) {
  const OperatorAtPlace& first = row.places.front();
  if (row.places.size() == 1) return first.place.text();
  const std::uint64_t whole = row.sums.total_ns + row.sums.wait_ns;
  const std::uint64_t part = first.sums.total_ns + first.sums.wait_ns;
  const double share = whole == 0 ? 1 : static_cast<double>(part) / static_cast<double>(whole);
  return fmt::format("{} {:.0f}%", cut(first.place.text(), 8), 100 * share);
}

std::string line_text(const OperatorRow& row) {
  const std::string& line = row.lines.front().line;
  return line.empty() ? "-" : std::string(base_name(line));
}

}  // namespace

void append_operators(std::string& out, const Selection& selection) {
  const OperatorRows table = operator_rows(selection);
  if (table.rows.empty()) return;
  out += "#\n";
  append_comment(
      out, fmt::format(
               "Operators of torch, sampled: from the native frames of stacks, so times are "
               "estimates and calls are not counted. {} of {} samples were in one. Self: of all "
               "CPU time, in the operator and in none inside it, +/- what it may differ by (95% "
               "confidence). Total: with those inside. Wait: off the CPU in it. In: where most "
               "of that was, a compiled region's trace id (bw: its backward) or eager. Line: the "
               "user's, with most of it.",
               grouped(table.samples), grouped(table.all_samples)));
  if (table.cut_samples > 0)
    append_comment(out, fmt::format("{} more samples have a native stack that is cut below any "
                                    "operator: operators that call MKL or oneDNN take more than is "
                                    "shown.",
                                    grouped(table.cut_samples)));
  out += "#\n";
  out +=
      "#   Self    +/-    Total  Samples    Wait s  Operator                    In            "
      "Line\n";
  out +=
      "# ......  .....  .......  .......  ........  ..........................  ............  "
      "............\n#\n";
  for (std::size_t i = 0; i < std::min(table.rows.size(), kMaxRows); ++i) {
    const OperatorRow& row = table.rows[i];
    std::string line = fmt::format(
        "{:>8}{:>7}{:>9}{:>9}{:>10.3f}  {}  {}  ", percent(row.sums.self_ns, table.all_ns),
        uncertainty(row.sums, table.all_samples), percent(row.sums.total_ns, table.all_ns),
        grouped(row.sums.self_samples), static_cast<double>(row.sums.wait_ns) * 1e-9,
        cell(row.name->text(), 26), cell(place_text(row), 12));
    out += line +
           cut(line_text(row), kReportColumns - std::min(display_width(line), kReportColumns - 3),
               true) +
           '\n';
  }
  if (table.rows.size() > kMaxRows)
    append_comment(out, fmt::format("{} more operators, each less; all are in operators.json",
                                    grouped(table.rows.size() - kMaxRows)));
}

}  // namespace dynprof
