#include <algorithm>
#include <map>
#include <string_view>
#include <unordered_map>

#include "symbolizer/export/html/tables.h"

namespace dynprof {
namespace {

constexpr std::uint32_t kAround = 2;  // lines shown on either side of one with time
constexpr std::size_t kMaxFiles = 40;
constexpr std::size_t kMaxLines = 4'000;  // of all files together
constexpr std::size_t kMaxText = 300;

using LineTimes = std::map<std::uint32_t, std::uint64_t>;

// Per stack the innermost frame of generated code that has a line, 0: none.
std::vector<FrameId> innermost_generated(const Tables& tables, const ResolvedFrames& frames) {
  std::vector<FrameId> innermost(tables.stacks.size(), 0);
  for (StackId id = 1; id < tables.stacks.size(); ++id) {
    const StackNode& node = tables.stacks[id];
    if (frames[node.frame].generated && frames[node.frame].line > 0)
      innermost[id] = node.frame;
    else if (node.caller < id)
      innermost[id] = innermost[node.caller];
  }
  return innermost;
}

std::vector<CodeLine> lines_of(std::string_view body, const LineTimes& times, std::size_t most) {
  std::vector<CodeLine> lines;
  std::uint32_t number = 1, shown = 0;
  auto next = times.begin();
  for (std::size_t at = 0; at <= body.size() && lines.size() < most; ++number) {
    const std::size_t end = std::min(body.find('\n', at), body.size());
    while (next != times.end() && next->first + kAround < number) ++next;
    if (next == times.end()) break;
    if (number + kAround >= next->first) {
      if (shown + 1 != number) lines.push_back({});
      shown = number;
      auto time = times.find(number);
      lines.push_back({number, time == times.end() ? 0 : time->second,
                       std::string(body.substr(at, std::min(end - at, kMaxText)))});
    }
    at = end + 1;
  }
  return lines;
}

}  // namespace

void add_code(Page& page, const Selection& selection) {
  const Tables& tables = selection.tables();
  const ResolvedFrames& frames = selection.attribution().frames();
  const std::vector<FrameId> innermost = innermost_generated(tables, frames);
  std::map<std::string_view, LineTimes> by_file;
  for (const StackCount& count : selection.counts) {
    const FrameId frame = innermost[count.stack];
    if (frame == 0) continue;
    by_file[frames[frame].file][static_cast<std::uint32_t>(frames[frame].line)] += count.ns;
  }
  std::unordered_map<std::string, std::string_view> bodies;
  for (const GeneratedCopy& copy : selection.analysis.generated().files())
    bodies.emplace(copy.path(), tables.blobs[copy.body]);
  std::vector<CodeListing> files;
  std::vector<const LineTimes*> times;
  for (const auto& [path, lines] : by_file) {
    CodeListing file{std::string(path)};
    for (const auto& [number, ns] : lines) file.ns += ns;
    files.push_back(std::move(file));
  }
  std::stable_sort(files.begin(), files.end(),
                   [](const CodeListing& a, const CodeListing& b) { return a.ns > b.ns; });
  if (files.size() > kMaxFiles) {
    page.code_left_out = files.size() - kMaxFiles;
    files.resize(kMaxFiles);
  }
  std::size_t left = kMaxLines;
  for (CodeListing& file : files) {
    auto body = bodies.find(file.path);
    if (body == bodies.end()) continue;
    file.lines = lines_of(body->second, by_file[file.path], left);
    left -= std::min(left, file.lines.size());
  }
  page.code = std::move(files);
}

}  // namespace dynprof
