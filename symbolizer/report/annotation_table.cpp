// The report's part about ranges that the program marks in itself; nothing where there are none.
#include <fmt/format.h>

#include <algorithm>

#include "symbolizer/report/annotation_rows.h"
#include "symbolizer/report/sections.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxRows = 20;

double seconds(std::uint64_t ns) { return static_cast<double>(ns) * 1e-9; }

}  // namespace

void append_annotations(std::string& out, const Selection& selection) {
  const std::vector<AnnotationSums> rows = annotation_rows(selection.analysis);
  if (rows.empty()) return;
  append_comment(
      out,
      "Annotations: ranges that the program marks (record_function, NVTX, ITT), with exact "
      "times. Total: of all of them, a range inside another one of its name counts again. "
      "CPU, in compile: of their thread, from samples. report --annotation NAME shows the "
      "samples inside one alone.");
  out += "#\n";
  out += "#  Count   Total s    Mean ms  Longest ms     CPU s  In compile  Kind             Name\n";
  out +=
      "# ......  ........  .........  ..........  ........  ..........  ...............  "
      "..................\n#\n";
  for (std::size_t i = 0; i < std::min(rows.size(), kMaxRows); ++i) {
    const AnnotationSums& row = rows[i];
    const std::string name = row.name.empty() ? std::string("(name not read)") : cut(row.name, 18);
    out += fmt::format(
        "{:>8}{:>10.3f}{:>11.3f}{:>12.3f}{:>10.3f}{:>12}  {}  {}\n", grouped(row.count),
        seconds(row.total_ns), 1e3 * seconds(row.total_ns) / static_cast<double>(row.count),
        1e3 * seconds(row.longest_ns), seconds(row.cpu_ns), percent(row.compile_ns, row.cpu_ns),
        cell(annotation_kind_text(row.kind), 15), name);
  }
  if (rows.size() > kMaxRows)
    append_comment(
        out, fmt::format("{} more names, each with less time", grouped(rows.size() - kMaxRows)));
  out += "#\n";
}

}  // namespace dynprof
