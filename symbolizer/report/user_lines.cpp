#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "symbolizer/report/sections.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxRows = 15;

// Inductor's files, wherever its cache is: "ab/cab3…py", a hash of 52 characters in a folder of its first.
bool is_inductor_file(std::string_view file) {
  constexpr std::size_t kHash = 40;
  std::size_t slash = file.rfind('/');
  if (slash == std::string_view::npos || !file.ends_with(".py")) return false;
  std::string_view stem = file.substr(slash + 1, file.size() - slash - 4);
  return stem.size() >= kHash && std::all_of(stem.begin(), stem.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
         });
}

// Code that came with Python or was installed, or that torch made: not what a user would change.
bool is_user_file(std::string_view file) {
  if (file.empty() || file.front() == '<' || is_inductor_file(file)) return false;
  for (std::string_view part :
       {"/site-packages/", "/dist-packages/", "/lib/python3", "/torchinductor_", "/torch/_",
        "/torch/nn/", "/torch/fx/", "/torch/utils/", "/torch/autograd/", "/torch/optim/"}) {
    if (file.find(part) != std::string_view::npos) return false;
  }
  return true;
}

struct Row {
  FrameId frame = 0;
  std::uint64_t samples = 0;
  std::uint64_t compiling = 0;
};

// Per stack the innermost frame of user code, 0: none.
std::vector<FrameId> innermost_user_frames(const Selection& selection) {
  const Tables& tables = selection.tables();
  const ResolvedFrames& frames = selection.attribution().frames();
  std::vector<bool> is_user(frames.size(), false);
  for (FrameId id = 0; id < frames.size(); ++id) {
    is_user[id] = frames[id].kind == FrameKind::kPython &&
                  frames[id].unreadable == Unreadable::kNo && !frames[id].generated &&
                  is_user_file(frames[id].file);
  }
  std::vector<FrameId> innermost(tables.stacks.size(), 0);
  for (StackId id = 1; id < tables.stacks.size(); ++id) {
    const StackNode& node = tables.stacks[id];
    innermost[id] = is_user[node.frame] ? node.frame
                    : node.caller < id  ? innermost[node.caller]
                                        : 0;
  }
  return innermost;
}

}  // namespace

void append_user_lines(std::string& out, const Selection& selection) {
  const ResolvedFrames& frames = selection.attribution().frames();
  std::vector<FrameId> innermost = innermost_user_frames(selection);
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
    row.samples += count.samples;
    if (count.compile != kNoCompile) row.compiling += count.samples;
  }
  std::unordered_map<std::string, Row> by_line;
  for (const auto& [frame, row] : by_frame) {
    Row& line = by_line[place(frame)];
    line.frame = line.samples == 0 ? frame : std::min(line.frame, frame);
    line.samples += row.samples;
    line.compiling += row.compiling;
  }
  if (by_line.empty()) return;
  std::vector<Row> rows;
  for (const auto& [text, row] : by_line) rows.push_back(row);
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return a.samples != b.samples ? a.samples > b.samples : a.frame < b.frame;
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
        fmt::format("{:>10}{:>12}  {}  {}", percent(row.samples, selection.samples),
                    percent(row.compiling, selection.samples), cell(place(row.frame), 36, true),
                    cut(frames[row.frame].function, 34));
    out += line + '\n';
  }
  if (left_out > 0) {
    append_comment(out, fmt::format("{} more lines, each less", grouped(left_out)));
  }
}

}  // namespace dynprof
