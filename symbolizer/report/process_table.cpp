// The report's part about child processes; nothing where a recording has none.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "symbolizer/attribution/process_tree.h"
#include "symbolizer/base/text.h"
#include "symbolizer/report/rows.h"
#include "symbolizer/report/sections.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxRows = 25;
constexpr std::size_t kMaxWaits = 20;

double seconds(std::uint64_t ns) { return static_cast<double>(ns) * 1e-9; }

}  // namespace

std::vector<ChildProcessRow> process_rows(const ProcessTree& tree) {
  std::map<std::tuple<std::string, CompileIndex, JoinRule>, ChildProcessRow> by_key;
  for (const ChildProcess& child : tree.all()) {
    const std::string title = tree.title(child);
    ChildProcessRow& row = by_key[{title, child.compile, child.rule}];
    row.title = title;
    row.compile = child.compile;
    row.rule = child.rule;
    ++row.count;
    row.cpu_ns += child.cpu_ns;
    row.samples += child.samples;
    row.wall_ns += child.end_ns - child.begin_ns;
  }
  std::vector<ChildProcessRow> rows;
  for (auto& [key, row] : by_key) rows.push_back(std::move(row));
  std::stable_sort(
      rows.begin(), rows.end(),
      [](const ChildProcessRow& a, const ChildProcessRow& b) { return a.cpu_ns > b.cpu_ns; });
  return rows;
}

void append_processes(std::string& out, const Selection& selection) {
  const Attribution& attribution = selection.attribution();
  const ProcessTree& tree = selection.analysis.processes();
  if (tree.all().empty()) return;
  const std::vector<ChildProcessRow> rows = process_rows(tree);
  out += "#\n";
  append_comment(
      out, fmt::format("Processes: {}; {:.2f} s of CPU for compiles, {:.2f} s shared by several, "
                       "{:.2f} s for none",
                       grouped(tree.all().size()), seconds(tree.joined_cpu_ns()),
                       seconds(tree.shared_cpu_ns()), seconds(tree.other_cpu_ns())));
  out += "#\n";
  // Trace ids are whole.
  std::size_t width = 12;
  for (std::size_t i = 0; i < std::min(rows.size(), kMaxRows); ++i) {
    if (rows[i].compile != kNoCompile)
      width = std::max(width, display_width(attribution.label(rows[i].compile)));
  }
  out += fmt::format("#   CPU s    Wall s   Count  Samples  {}  Joined by          Command\n",
                     cell("Trace id", width));
  out += fmt::format("# .......  ........  ......  .......  {}  .................  {}\n#\n",
                     std::string(width, '.'),
                     std::string(kReportColumns - std::min<std::size_t>(59 + width, 90), '.'));
  for (std::size_t i = 0; i < std::min(rows.size(), kMaxRows); ++i) {
    const ChildProcessRow& row = rows[i];
    const std::string id = row.compile == kNoCompile ? "-" : attribution.label(row.compile);
    std::string line =
        fmt::format("{:>9.3f}{:>10.3f}{:>8}{:>9}  {}  {}  ", seconds(row.cpu_ns),
                    seconds(row.wall_ns), grouped(row.count), grouped(row.samples), cell(id, width),
                    cell(row.rule == JoinRule::kNone ? "-" : join_rule_text(row.rule), 17));
    out += line + cut(row.title, kReportColumns - std::min(line.size(), kReportColumns - 1)) + '\n';
  }
  if (rows.size() > kMaxRows)
    append_comment(out,
                   fmt::format("{} more commands, each less", grouped(rows.size() - kMaxRows)));
}

void append_waited_for(std::string& out, const Selection& selection, CompileIndex index) {
  const Attribution& attribution = selection.attribution();
  const ProcessTree& tree = selection.analysis.processes();
  const Compile& compile = attribution.compiles()[index];
  if (tree.of(index).empty()) return;
  const std::vector<Interval> off = tree.off_cpu(index);
  std::vector<std::pair<std::uint64_t, ProcessIndex>> waits;
  for (ProcessIndex i : tree.of(index)) {
    const ChildProcess& child = tree.all()[i];
    // What a child started in turn is waited for by that child.
    if (child.rule == JoinRule::kParent) continue;
    waits.emplace_back(ProcessTree::overlap_ns(child, {compile.first_ns, compile.last_ns}, off), i);
  }
  std::stable_sort(waits.begin(), waits.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  out += "#\n";
  append_comment(out, fmt::format("Child processes: {}, {:.3f} s of CPU",
                                  grouped(tree.of(index).size()), seconds(tree.cpu_ns(index))));
  for (std::size_t i = 0; i < std::min(waits.size(), kMaxWaits); ++i) {
    const ChildProcess& child = tree.all()[waits[i].second];
    std::string text = fmt::format("{} ({:.3f} s)", tree.title(child), seconds(waits[i].first));
    if (child.ended && child.exit_status != 0)
      text += fmt::format(", ended with status {:#x}", child.exit_status);
    append_item(out, "waited for", text, 2);
  }
  if (waits.size() > kMaxWaits)
    append_comment(out, fmt::format("{} more, each less", grouped(waits.size() - kMaxWaits)));
}

}  // namespace dynprof
