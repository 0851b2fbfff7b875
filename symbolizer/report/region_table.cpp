// The report's part about runs of compiled regions; nothing where none were counted.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <vector>

#include "symbolizer/base/text.h"
#include "symbolizer/report/region_rows.h"
#include "symbolizer/report/sections.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxRegions = 20;
constexpr std::size_t kPlaceColumns = 20;

std::string percent(std::optional<double> part, bool estimated = false) {
  return part ? fmt::format("{}{:.1f}%", estimated ? "~" : "", 100 * *part) : "-";
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
  std::vector<const RegionProcess*> not_counted, not_timed;
  for (const RegionProcess& process : regions.processes()) {
    if (!process.complete)
      not_counted.push_back(&process);
    else if (!process.timed())
      not_timed.push_back(&process);
  }
  auto append = [&](const std::vector<const RegionProcess*>& processes, std::uint64_t end_ns,
                    std::string_view what, std::string_view then) {
    const RegionProcess& first = *processes.front();
    append_comment(
        out, fmt::format("Process {}{} ran regions too often to {} every run: after {:.1f} s {} "
                         "(docs/concepts/steady-state.md). With --count-all-runs all are counted "
                         "and timed, which slows the process down.",
                         first.pid,
                         processes.size() > 1
                             ? fmt::format(" (and {} more processes)", processes.size() - 1)
                             : "",
                         what, static_cast<double>(end_ns - first.begin_ns) / 1e9, then));
  };
  if (!not_counted.empty())
    append(not_counted, not_counted.front()->end_ns, "count",
           "the probes were removed, and calls and times per run are of the time until then");
  if (!not_timed.empty())
    append(not_timed, not_timed.front()->timed_end_ns, "time",
           "only their number was counted; times per run are of the time until then, and shares "
           "with ~ assume the same times since");
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
    out += fmt::format(
        "{:>7}{:>7}{:>14}{:>9}{:>11}{:>10}{:>9}  {}  {}\n", percent(row.share, !row.timed),
        percent(row.cpu_share), (row.complete ? "" : ">= ") + grouped(stats.calls),
        row.complete ? rate_text(stats.calls_per_second()) : "-", time_text(stats.time_per_run()),
        time_text(stats.lookup_per_run()), percent(row.outside), cell(row.id(), 9),
        place_text(row, regions.processes().size() > 1));
  }
  if (rows.size() > kMaxRegions)
    append_comment(out,
                   fmt::format("{} more regions, each less", grouped(rows.size() - kMaxRegions)));
  append_limited(out, regions);
  out += "#\n";
}

}  // namespace dynprof
