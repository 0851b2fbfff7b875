#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "symbolizer/report/sections.h"
#include "symbolizer/report/user_frames.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxRows = 15;

struct Row {
  FrameId frame = 0;
  std::uint64_t ns = 0;
  std::uint64_t compiling_ns = 0;
};

}  // namespace

void append_user_lines(std::string& out, const Selection& selection) {
  const ResolvedFrames& frames = selection.attribution().frames();
  std::vector<FrameId> innermost =
      innermost_user_frames(selection.tables(), frames, selection.options.user_packages);
  auto place = [&](FrameId id) {
    return fmt::format("{}:{}", frames[id].file,
                       frames[id].line > 0 ? frames[id].line : frames[id].first_line);
  };
  // Several frames may be on one line.
  std::unordered_map<FrameId, Row> by_frame;
  for (const StackCount& count : selection.counts) {
    FrameId frame = innermost[count.stack];
    if (frame == 0) continue;
    Row& row = by_frame[frame];
    row.frame = frame;
    row.ns += count.ns;
    if (count.compile != kNoCompile) row.compiling_ns += count.ns;
  }
  std::unordered_map<std::string, Row> by_line;
  for (const auto& [frame, row] : by_frame) {
    Row& line = by_line[place(frame)];
    line.frame = line.frame == 0 ? frame : std::min(line.frame, frame);
    line.ns += row.ns;
    line.compiling_ns += row.compiling_ns;
  }
  if (by_line.empty()) return;
  std::vector<Row> rows;
  for (const auto& [text, row] : by_line) rows.push_back(row);
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return a.ns != b.ns ? a.ns > b.ns : a.frame < b.frame;
  });
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
  for (const Row& row : rows) {
    std::string line =
        fmt::format("{:>10}{:>12}  {}  {}", percent(row.ns, selection.ns),
                    percent(row.compiling_ns, selection.ns), cell(place(row.frame), 36, true),
                    cut(frames[row.frame].function, 34));
    out += line + '\n';
  }
  if (left_out > 0) {
    append_comment(out, fmt::format("{} more lines, each less", grouped(left_out)));
  }
}

}  // namespace dynprof
