// The report's part about child processes; nothing where a recording has none.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "symbolizer/attribution/process_jobs.h"
#include "symbolizer/base/text.h"
#include "symbolizer/report/rows.h"
#include "symbolizer/report/sections.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxRows = 25;
constexpr std::size_t kMaxWaits = 20;
constexpr std::size_t kMaxPeaks = 4;

double seconds(std::uint64_t ns) { return static_cast<double>(ns) * 1e-9; }

std::string mebibytes(std::uint64_t bytes) {
  return bytes == 0 ? "-" : grouped((bytes + (1u << 19)) >> 20);
}

std::string program_of(const std::string& title) { return title.substr(0, title.find(' ')); }

// What was done: "kernel cpp_fused_add_0", "one-off: precompiled header", "python train.py".
std::string work_text(const ProcessTree& tree, const ProcessJob& job) {
  std::string title = tree.title(tree.all()[job.root]);
  if (is_one_off(job.purpose)) return fmt::format("one-off: {}", purpose_text(job.purpose));
  if (!job.kernel.empty()) return fmt::format("kernel {}", job.kernel);
  if (job.purpose == Purpose::kOther || job.purpose == Purpose::kWorker) return title;
  return fmt::format("{}: {}", purpose_text(job.purpose), title);
}

// CPU time for compiles, by what it was for.
void append_purposes(std::string& out, const ProcessTree& tree, const ProcessJobs& jobs) {
  std::map<Purpose, std::uint64_t> sums;
  std::uint64_t all = 0, once = 0;
  for (const ProcessJob& job : jobs.all()) {
    if (job.compile == kNoCompile || job.purpose == Purpose::kWorker) continue;
    sums[job.purpose] += job.cpu_ns;
    all += job.cpu_ns;
    if (is_one_off(job.purpose)) once += job.cpu_ns;
  }
  for (const WorkerShare& share : tree.worker_shares()) {
    sums[Purpose::kWorker] += share.cpu_ns;
    all += share.cpu_ns;
  }
  if (all == 0) return;
  std::vector<std::pair<Purpose, std::uint64_t>> order(sums.begin(), sums.end());
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string each_time, one_off;
  for (const auto& [purpose, ns] : order) {
    std::string& text = is_one_off(purpose) ? one_off : each_time;
    text +=
        fmt::format("{}{} {:.2f} s", text.empty() ? "" : ", ", purpose_text(purpose), seconds(ns));
  }
  std::string text = "CPU time of these by purpose: " + each_time;
  if (!one_off.empty())
    text += fmt::format("{}one-off {:.2f} s ({})", each_time.empty() ? "" : "; ", seconds(once),
                        one_off);
  append_comment(out, text);
}

// The largest process of each program; a target by its number too.
void append_peaks(std::string& out, const Selection& selection) {
  const ProcessTree& tree = selection.analysis.processes();
  std::string text;
  const std::vector<ProcessPeak>& targets = tree.target_peaks();
  for (std::size_t i = 0; i < std::min(targets.size(), kMaxPeaks); ++i)
    text += fmt::format("{}pid {} {} MiB", text.empty() ? "" : ", ", targets[i].pid,
                        mebibytes(targets[i].bytes));
  if (targets.size() > kMaxPeaks)
    text += fmt::format(" and {} more", grouped(targets.size() - kMaxPeaks));
  std::map<std::string, std::uint64_t> programs;
  for (const ChildProcess& child : tree.all()) {
    if (child.peak_bytes == 0) continue;
    std::uint64_t& most = programs[program_of(tree.title(child))];
    most = std::max(most, child.peak_bytes);
  }
  std::vector<std::pair<std::string, std::uint64_t>> order(programs.begin(), programs.end());
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  for (std::size_t i = 0; i < std::min(order.size(), kMaxPeaks); ++i)
    text += fmt::format("{}{} {} MiB", text.empty() ? "" : ", ", cut(order[i].first, 24),
                        mebibytes(order[i].second));
  if (!text.empty()) append_comment(out, "Most memory of one process: " + text);
}

}  // namespace

std::vector<ChildProcessRow> process_rows(const ProcessTree& tree, const ProcessJobs& jobs) {
  std::map<std::pair<std::string, CompileIndex>, ChildProcessRow> by_key;
  for (const ProcessJob& job : jobs.all()) {
    const std::string work = work_text(tree, job);
    const ChildProcess& root = tree.all()[job.root];
    ChildProcessRow& row = by_key[{work, job.compile}];
    row.work = work;
    row.compile = job.compile;
    ++row.count;
    row.cpu_ns += job.cpu_ns;
    row.wall_ns += root.end_ns - root.begin_ns;
    row.peak_bytes = std::max(row.peak_bytes, job.peak_bytes);
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
  const ProcessJobs& jobs = selection.analysis.jobs();
  if (tree.all().empty()) {
    if (!tree.target_peaks().empty()) {
      out += "#\n";
      append_peaks(out, selection);
    }
    return;
  }
  const std::vector<ChildProcessRow> rows = process_rows(tree, jobs);
  out += "#\n";
  append_comment(
      out, fmt::format("Processes: {}; {:.2f} s of CPU for compiles, {:.2f} s shared by several, "
                       "{:.2f} s for none",
                       grouped(tree.all().size()), seconds(tree.joined_cpu_ns()),
                       seconds(tree.shared_cpu_ns()), seconds(tree.other_cpu_ns())));
  append_purposes(out, tree, jobs);
  append_peaks(out, selection);
  out += "#\n";
  // Trace ids are whole.
  std::size_t width = 12;
  for (std::size_t i = 0; i < std::min(rows.size(), kMaxRows); ++i) {
    if (rows[i].compile != kNoCompile)
      width = std::max(width, display_width(attribution.label(rows[i].compile)));
  }
  out += fmt::format("#   CPU s    Wall s  Count  Peak MiB  {}  For\n", cell("Trace id", width));
  out += fmt::format("# .......  ........  .....  ........  {}  {}\n#\n", std::string(width, '.'),
                     std::string(kReportColumns - std::min<std::size_t>(40 + width, 90), '.'));
  for (std::size_t i = 0; i < std::min(rows.size(), kMaxRows); ++i) {
    const ChildProcessRow& row = rows[i];
    const std::string id = row.compile == kNoCompile ? "-" : attribution.label(row.compile);
    const std::string line =
        fmt::format("{:>9.3f}{:>10.3f}{:>7}{:>10}  {}  ", seconds(row.cpu_ns), seconds(row.wall_ns),
                    grouped(row.count), mebibytes(row.peak_bytes), cell(id, width));
    const std::size_t room = kReportColumns - std::min(display_width(line), kReportColumns - 1);
    out += line + cut(row.work, room) + '\n';
  }
  if (rows.size() > kMaxRows)
    append_comment(out, fmt::format("{} more, each less", grouped(rows.size() - kMaxRows)));
}

void append_waited_for(std::string& out, const Selection& selection, CompileIndex index) {
  const Attribution& attribution = selection.attribution();
  const ProcessTree& tree = selection.analysis.processes();
  const ProcessJobs& jobs = selection.analysis.jobs();
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
  std::string title = fmt::format("Child processes: {}, {:.3f} s of CPU",
                                  grouped(tree.of(index).size()), seconds(tree.cpu_ns(index)));
  if (const std::uint64_t once = jobs.one_off(index).wall_ns; once > 0)
    title +=
        fmt::format("; for {:.3f} s of it something ran that is kept in a cache", seconds(once));
  append_comment(out, title);
  for (std::size_t i = 0; i < std::min(waits.size(), kMaxWaits); ++i) {
    const ChildProcess& child = tree.all()[waits[i].second];
    const ProcessJob& job = jobs.of(waits[i].second);
    std::string text = tree.title(child);
    if (!job.kernel.empty())
      text = fmt::format("{} for kernel {}", program_of(text), job.kernel);
    else if (is_one_off(job.purpose))
      text += fmt::format(", {}", purpose_text(job.purpose));
    text += fmt::format(" ({:.3f} s)", seconds(waits[i].first));
    if (child.ended && child.exit_status != 0)
      text += fmt::format(", ended with status {:#x}", child.exit_status);
    append_item(out, "waited for", text, 2);
  }
  if (waits.size() > kMaxWaits)
    append_comment(out, fmt::format("{} more, each less", grouped(waits.size() - kMaxWaits)));
}

}  // namespace dynprof
