#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "symbolizer/report/rows.h"
#include "symbolizer/report/sections.h"
#include "symbolizer/report/user_frames.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxRows = 15;

}  // namespace

std::string user_line_place(const ResolvedFrame& frame) {
  return fmt::format("{}:{}", frame.file, frame.line > 0 ? frame.line : frame.first_line);
}

std::vector<UserLineRow> user_line_rows(const Selection& selection) {
  const ResolvedFrames& frames = selection.attribution().frames();
  std::vector<FrameId> innermost = innermost_user_frames(selection.tables(), frames);
  auto add = [](UserLineRow& to, const UserLineRow& more) {
    to.frame = to.frame == 0 ? more.frame : std::min(to.frame, more.frame);
    to.ns += more.ns;
    to.compiling_ns += more.compiling_ns;
    to.samples += more.samples;
    to.compiling_samples += more.compiling_samples;
  };
  // Several frames may be on one line.
  std::unordered_map<FrameId, UserLineRow> by_frame;
  for (const StackCount& count : selection.counts) {
    FrameId frame = innermost[count.stack];
    if (frame == 0) continue;
    const bool compiling = count.compile != kNoCompile;
    add(by_frame[frame],
        {frame, count.ns, compiling ? count.ns : 0, count.samples, compiling ? count.samples : 0});
  }
  std::unordered_map<std::string, UserLineRow> by_line;
  for (const auto& [frame, row] : by_frame) add(by_line[user_line_place(frames[frame])], row);
  std::vector<UserLineRow> rows;
  for (const auto& [text, row] : by_line) rows.push_back(row);
  std::sort(rows.begin(), rows.end(), [](const UserLineRow& a, const UserLineRow& b) {
    return a.ns != b.ns ? a.ns > b.ns : a.frame < b.frame;
  });
  return rows;
}

void append_user_lines(std::string& out, const Selection& selection) {
  const ResolvedFrames& frames = selection.attribution().frames();
  std::vector<UserLineRow> rows = user_line_rows(selection);
  if (rows.empty()) return;
  std::size_t left_out = rows.size() > kMaxRows ? rows.size() - kMaxRows : 0;
  rows.resize(rows.size() - left_out);

  out += "#\n";
  append_comment(out,
                 "Lines of user code: the innermost on each sample's stack. In compile: the "
                 "part of it that torch.compile took.");
  out += "#\n";
  out += "# Overhead  In compile  Line                                  Function\n";
  out +=
      "# ........  ..........  ....................................  "
      "..................................\n#\n";
  for (const UserLineRow& row : rows) {
    std::string line = fmt::format("{:>10}{:>12}  {}  {}", percent(row.ns, selection.ns),
                                   percent(row.compiling_ns, selection.ns),
                                   cell(user_line_place(frames[row.frame]), 36, true),
                                   cut(frames[row.frame].function, 34));
    out += line + '\n';
  }
  if (left_out > 0) {
    append_comment(out, fmt::format("{} more lines, each less", grouped(left_out)));
  }
}

}  // namespace dynprof
