#include "symbolizer/attribution/gpu_names.h"

#include <algorithm>

#include "symbolizer/attribution/generated.h"

namespace dynprof {
namespace {

// Stacks are no deeper than this (recording/reader.h cuts them).
constexpr std::size_t kMaxDepth = 1 << 14;
constexpr std::size_t kMaxName = 512;

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

}  // namespace

std::string_view launched_on_line(std::string_view line) {
  const std::size_t run = line.find(".run(");
  if (run == std::string_view::npos) return {};
  std::size_t begin = run;
  while (begin > 0 && is_word(line[begin - 1])) --begin;
  // `self.name.run(` is read as `name`.
  const std::string_view name = line.substr(begin, run - begin);
  if (name.empty() || name.size() > kMaxName || (name[0] >= '0' && name[0] <= '9')) return {};
  return name;
}

std::string_view kernel_of_stub(std::string_view symbol) {
  constexpr std::string_view kStub = "__device_stub__";
  if (symbol.starts_with(kStub)) symbol.remove_prefix(kStub.size());
  return symbol;
}

GpuNames::GpuNames(const Attribution& attribution) : attribution_(attribution) {
  const Tables& tables = attribution.recording().tables();
  Generated generated(attribution);
  for (const GeneratedCopy& file : generated.files())
    if (file.body < tables.blobs.size())
      lines_.try_emplace(file.path(), split_lines(tables.blobs[file.body]));
}

std::string_view GpuNames::of_stub(FrameId function) const {
  const ResolvedFrames& frames = attribution_.frames();
  if (function >= frames.size()) return {};
  const ResolvedFrame& frame = frames[function];
  if (frame.kind != FrameKind::kNative || frame.unreadable != Unreadable::kNo) return {};
  return kernel_of_stub(frame.function);
}

std::string_view GpuNames::library(FrameId frame) const {
  const ResolvedFrames& frames = attribution_.frames();
  if (frame >= frames.size() || frames[frame].kind != FrameKind::kNative) return {};
  const std::string_view path = frames[frame].file;
  if (!path.starts_with('/')) return {};  // "[unmapped]" and such
  return path.substr(path.rfind('/') + 1);
}

std::string_view GpuNames::of_frame(FrameId id) {
  const auto known = names_.find(id);
  if (known != names_.end()) return known->second;
  const ResolvedFrame& frame = attribution_.frames()[id];
  std::string_view name;
  const auto file = lines_.find(std::string(frame.file));
  const auto line = static_cast<std::size_t>(std::max(frame.line, 0));
  if (file != lines_.end() && line > 0 && line <= file->second.size())
    name = launched_on_line(file->second[line - 1]);
  return names_[id] = name;
}

std::string_view GpuNames::of_stack(StackId stack) {
  const Tables& tables = attribution_.recording().tables();
  const ResolvedFrames& frames = attribution_.frames();
  if (lines_.empty()) return {};
  for (std::size_t depth = 0; stack != 0 && stack < tables.stacks.size() && depth < kMaxDepth;
       ++depth) {
    const StackNode& node = tables.stacks[stack];
    if (node.frame < frames.size() && frames[node.frame].generated) return of_frame(node.frame);
    stack = node.caller;
  }
  return {};
}

}  // namespace dynprof
