// The report's part about runs of compiled regions; nothing where none were counted.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "symbolizer/base/text.h"
#include "symbolizer/report/region_rows.h"
#include "symbolizer/report/sections.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxRegions = 20;
constexpr std::size_t kPlaceColumns = 20;

std::string percent(std::optional<double> part) {
  return part ? fmt::format("{:.1f}%", 100 * *part) : "-";
}

std::string time_text(double ns) {
  if (ns <= 0) return "-";
  if (ns < 10'000'000) return fmt::format("{:.1f} us", ns / 1e3);
  if (ns < 10'000'000'000) return fmt::format("{:.1f} ms", ns / 1e6);
  return fmt::format("{:.1f} s", ns / 1e9);
}

std::string rate_text(double per_second) {
  if (per_second < 100) return fmt::format("{:.1f}", per_second);
  return per_second < 1e9 ? grouped(static_cast<std::uint64_t>(std::lround(per_second))) : "-";
}

// "train.py:69", with the pid where there are several.
std::string place_text(const RegionRow& row, bool several) {
  std::string text =
      row.line > 0 ? fmt::format("{}:{}", base_name(row.file), row.line) : std::string("-");
  if (several) text += fmt::format(" ({})", row.stats->pid);
  return cut(text, kPlaceColumns, true);
}

void append_limited(std::string& out, const RegionRunStats& regions) {
  const RegionProcess* first = nullptr;
  std::size_t number = 0;
  for (const RegionProcess& process : regions.processes()) {
    if (process.complete) continue;
    if (number++ == 0) first = &process;
  }
  if (first == nullptr) return;
  append_comment(
      out,
      fmt::format("Process {}{} ran regions too often to count every run: the probes were removed "
                  "after {:.1f} s, and calls and times per run are of the time until then "
                  "(docs/concepts/steady-state.md).",
                  first->pid, number > 1 ? fmt::format(" (and {} more processes)", number - 1) : "",
                  static_cast<double>(first->end_ns - first->begin_ns) / 1e9));
}

}  // namespace

void append_regions(std::string& out, const Selection& selection) {
  const RegionRunStats& regions = selection.analysis.regions();
  const std::vector<RegionRow> rows = region_rows(selection.analysis);
  if (rows.empty()) return;
  append_comment(
      out,
      "Compiled regions: runs of compiled code. Share: of its process's time, in a run and in no "
      "region inside it. CPU: of all CPU time, from samples. Per run: mean, with everything inside "
      "but no compile. Search: torch's cache lookup and guards before a run. Outside: of the "
      "region's CPU time, what is not in its compiled graph (rewritten bytecode, torch's "
      "wrappers).");
  out += "#\n";
  out +=
      "# Share    CPU         Calls  Calls/s    Per run    Search  Outside  Trace id   Function\n";
  out +=
      "# .....  .....  ............  .......  .........  ........  .......  .........  "
      "........\n#\n";
  for (std::size_t i = 0; i < std::min(rows.size(), kMaxRegions); ++i) {
    const RegionRow& row = rows[i];
    const RegionStats& stats = *row.stats;
    out += fmt::format("{:>7}{:>7}{:>14}{:>9}{:>11}{:>10}{:>9}  {}  {}\n", percent(row.share),
                       percent(row.cpu_share), (row.complete ? "" : ">= ") + grouped(stats.calls),
                       row.complete ? rate_text(stats.calls_per_second()) : "-",
                       time_text(stats.time_per_run()), time_text(stats.lookup_per_run()),
                       percent(row.outside), cell(row.id(), 9),
                       place_text(row, regions.processes().size() > 1));
  }
  if (rows.size() > kMaxRegions)
    append_comment(out,
                   fmt::format("{} more regions, each less", grouped(rows.size() - kMaxRegions)));
  append_limited(out, regions);
  out += "#\n";
}

}  // namespace dynprof
