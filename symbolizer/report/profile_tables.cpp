#include <fmt/format.h>

#include <algorithm>

#include "symbolizer/report/sections.h"

namespace dynprof {
namespace {

constexpr std::size_t kRows = 20;  // as TORCH_COMPILE_CPROFILE prints without gprof2dot

// The columns of pstats' print_stats: ncalls tottime percall cumtime percall name.
std::string row_text(const ProfileEntry& entry, const Function& function) {
  double tottime = static_cast<double>(entry.leaf_ns) * 1e-9;
  double cumtime = static_cast<double>(entry.on_stack_ns) * 1e-9;
  std::string calls = entry.leaf == entry.on_stack
                          ? std::to_string(entry.on_stack)
                          : fmt::format("{}/{}", entry.on_stack, entry.leaf);
  auto per = [](double seconds, std::uint64_t count) {
    return count == 0 ? std::string(8, ' ')
                      : fmt::format("{:8.3f}", seconds / static_cast<double>(count));
  };
  std::string line = fmt::format("{:>9} {:8.3f} {} {:8.3f} {} ", calls, tottime,
                                 per(tottime, entry.on_stack), cumtime, per(cumtime, entry.leaf));
  std::size_t width = kReportColumns - std::min(line.size(), kReportColumns - 20);
  if (function.kind != FrameKind::kPython) return line + cut(function.name, width);
  std::string name = fmt::format(":{}({})", function.first_line,
                                 cut(function.name, std::max<std::size_t>(width / 2, 10)));
  name = cut(name, width);
  std::string file = cut(function.file, width - std::min(width - 1, name.size()), true);
  return line + cut(file + name, width);
}

void append_table(std::string& out, const Selection& selection, const Profile& profile,
                  bool by_cumulative) {
  const Functions& functions = selection.analysis.functions();
  std::vector<const ProfileEntry*> rows;
  for (const ProfileEntry& entry : profile.entries) rows.push_back(&entry);
  auto key = [&](const ProfileEntry* entry) {
    return by_cumulative ? entry->on_stack_ns : entry->leaf_ns;
  };
  std::stable_sort(rows.begin(), rows.end(),
                   [&](const ProfileEntry* a, const ProfileEntry* b) { return key(a) > key(b); });
  out += fmt::format("   Ordered by: {}\n", by_cumulative ? "cumulative time" : "internal time");
  if (rows.size() > kRows) {
    out += fmt::format("   List reduced from {} to {} due to restriction <{}>\n", rows.size(),
                       kRows, kRows);
    rows.resize(kRows);
  }
  out += "\n   ncalls  tottime  percall  cumtime  percall filename:lineno(function)\n";
  for (const ProfileEntry* row : rows) {
    out += row_text(*row, functions[row->function]) + '\n';
  }
  out += '\n';
}

}  // namespace

void append_profile_tables(std::string& out, const Selection& selection) {
  const Attribution& attribution = selection.attribution();
  for (CompileIndex index : selection.compiles) {
    auto begin =
        std::partition_point(selection.counts.begin(), selection.counts.end(),
                             [&](const StackCount& count) { return count.compile < index; });
    auto end = std::partition_point(begin, selection.counts.end(), [&](const StackCount& count) {
      return count.compile == index;
    });
    if (begin == end) continue;
    std::vector<StackCount> counts(begin, end);
    bool waited = selection.options.phases.empty() && !selection.analysis.cpu_only();
    if (waited) {
      const auto waits = selection.analysis.counts().waits_of(index);
      counts.insert(counts.end(), waits.begin(), waits.end());
      waited = !waits.empty();
    }
    Profile profile = selection.analysis.inside_compile(counts);
    std::uint64_t calls = 0;
    for (const ProfileEntry& entry : profile.entries) calls += entry.on_stack;
    out += "#\n";
    append_comment(
        out, fmt::format("{}: compile {}", attribution.file_stem(index), attribution.label(index)));
    append_comment(
        out, waited
                 ? "ncalls N/M: it was on the stack in N samples and waits, and innermost in "
                   "M of them; times are the CPU time that samples stand for, and waits by length."
                 : "ncalls N/M: it was on the stack in N samples, and innermost in M of them; "
                   "times are the CPU time that samples stand for.");
    out += fmt::format("         {} function calls ({} primitive calls) in {:.3f} seconds\n\n",
                       calls, profile.samples, static_cast<double>(profile.ns) * 1e-9);
    append_table(out, selection, profile, false);
    append_table(out, selection, profile, true);
  }
}

}  // namespace dynprof
