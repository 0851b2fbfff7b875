#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "symbolizer/report/rows.h"
#include "symbolizer/report/sections.h"
#include "symbolizer/report/user_frames.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxRows = 15;

// Waits whose stack has a line of user code, by its frame: not those of threads that have nothing to do.
void add_waits(const Selection& selection, const std::vector<FrameId>& innermost,
               std::unordered_map<FrameId, UserLineRow>& by_frame) {
  const Tables& tables = selection.tables();
  if (tables.waits.empty()) return;
  const Waits& waits = selection.analysis.counts().recorded_waits();
  const WaitMeanings& meanings = selection.analysis.meanings();
  const bool all = selection.options.compiles.empty();
  for (std::size_t i = 0; i < tables.waits.size(); ++i) {
    const Wait& wait = tables.waits[i];
    if (wait.kind == WaitKind::kNone || wait.kind == WaitKind::kPreempted) continue;
    const FrameId frame = innermost[wait.stack];
    if (frame == 0 || is_idle(meanings.of(wait))) continue;
    for (const Waits::Part& part : waits.parts(tables, i)) {
      if (!all && std::find(selection.compiles.begin(), selection.compiles.end(),
                            part.owner.compile) == selection.compiles.end())
        continue;
      UserLineRow& row = by_frame[frame];
      row.frame = frame;
      // Without the time it could have run.
      const double waited = static_cast<double>(wait.length_ns - wait.runnable_ns) /
                            static_cast<double>(std::max<std::uint64_t>(wait.length_ns, 1));
      row.wait_ns += static_cast<std::uint64_t>(static_cast<double>(part.ns) * waited);
    }
  }
}

}  // namespace

std::string user_line_place(const ResolvedFrame& frame) {
  return fmt::format("{}:{}", frame.file, frame.line > 0 ? frame.line : frame.first_line);
}

std::vector<UserLineRow> user_line_rows(const Selection& selection) {
  const ResolvedFrames& frames = selection.attribution().frames();
  std::vector<FrameId> innermost =
      innermost_user_frames(selection.tables(), frames, selection.options.user_packages);
  auto add = [](UserLineRow& to, const UserLineRow& more) {
    to.frame = to.frame == 0 ? more.frame : std::min(to.frame, more.frame);
    to.ns += more.ns;
    to.compiling_ns += more.compiling_ns;
    to.samples += more.samples;
    to.compiling_samples += more.compiling_samples;
    to.wait_ns += more.wait_ns;
  };
  // Several frames may be on one line.
  std::unordered_map<FrameId, UserLineRow> by_frame;
  for (const StackCount& count : selection.counts) {
    FrameId frame = innermost[count.stack];
    if (frame == 0) continue;
    const bool compiling = count.compile != kNoCompile;
    add(by_frame[frame], {frame, count.ns, compiling ? count.ns : 0, count.samples,
                          compiling ? count.samples : 0, 0});
  }
  add_waits(selection, innermost, by_frame);
  std::unordered_map<std::string, UserLineRow> by_line;
  for (const auto& [frame, row] : by_frame) add(by_line[user_line_place(frames[frame])], row);
  std::vector<UserLineRow> rows;
  for (const auto& [text, row] : by_line) rows.push_back(row);
  std::sort(rows.begin(), rows.end(), [](const UserLineRow& a, const UserLineRow& b) {
    const std::uint64_t of_a = a.ns + a.wait_ns, of_b = b.ns + b.wait_ns;
    return of_a != of_b ? of_a > of_b : a.frame < b.frame;
  });
  return rows;
}

void append_user_lines(std::string& out, const Selection& selection) {
  const ResolvedFrames& frames = selection.attribution().frames();
  std::vector<UserLineRow> rows = user_line_rows(selection);
  if (rows.empty()) return;
  std::size_t left_out = rows.size() > kMaxRows ? rows.size() - kMaxRows : 0;
  rows.resize(rows.size() - left_out);
  // Rows that are no waits say how long a thread ran.
  const std::vector<Wait>& waits = selection.tables().waits;
  const bool with_waits = std::any_of(waits.begin(), waits.end(), [](const Wait& wait) {
    return wait.kind != WaitKind::kNone && wait.kind != WaitKind::kPreempted;
  });

  out += "#\n";
  append_comment(out, std::string("Lines of user code: the innermost on each sample's stack. In "
                                  "compile: the part of it that torch.compile took.") +
                          (with_waits ? " Wait s: what threads waited at it." : ""));
  out += "#\n";
  const std::size_t room = with_waits ? 24 : 34;
  out += fmt::format("# Overhead  In compile  {}Line                                  Function\n",
                     with_waits ? "  Wait s  " : "");
  out += fmt::format("# ........  ..........  {}....................................  {}\n#\n",
                     with_waits ? "........  " : "", std::string(room, '.'));
  for (const UserLineRow& row : rows) {
    std::string line = fmt::format(
        "{:>10}{:>12}{}  {}  {}", percent(row.ns, selection.ns),
        percent(row.compiling_ns, selection.ns),
        with_waits ? fmt::format("{:>10.3f}", static_cast<double>(row.wait_ns) * 1e-9)
                   : std::string(),
        cell(user_line_place(frames[row.frame]), 36, true), cut(frames[row.frame].function, room));
    out += line + '\n';
  }
  if (left_out > 0) {
    append_comment(out, fmt::format("{} more lines, each less", grouped(left_out)));
  }
}

}  // namespace dynprof
