#include "symbolizer/export/folded.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>

#include "symbolizer/base/text.h"
#include "symbolizer/export/formats.h"
#include "symbolizer/profile/call_tree.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxColumns = 1000;  // of one frame

// ';' parts frames and a line ends a stack: neither may come from a name.
std::string frame_text(std::string_view text) {
  std::string out = truncate_columns(escape_terminal(text), kMaxColumns);
  for (std::size_t at = 0; (at = out.find(';', at)) != std::string::npos; at += 4) {
    out.replace(at, 1, "\\x3b");
  }
  return out;
}

// "[libc.so.6]" for a frame without a name; of what is no file, the brackets are there ("[vdso]", "[jit]").
std::string object_text(std::string_view file) {
  const std::string_view name = base_name(file);
  return frame_text(name.starts_with('[') ? std::string(name) : fmt::format("[{}]", name));
}

std::string describe(const ResolvedFrame& frame, bool lines) {
  if (frame.kind == FrameKind::kKernel) return frame_text(frame.function) + "_[k]";
  if (frame.kind == FrameKind::kNative) {
    if (frame.unreadable == Unreadable::kNo) return frame_text(frame.function);
    return object_text(frame.file);
  }
  if (frame.unreadable != Unreadable::kNo) return frame_text(frame.function);
  std::int32_t line = lines && frame.line > 0 ? frame.line : frame.first_line;
  return frame_text(fmt::format("{} ({}:{})", frame.function, base_name(frame.file), line));
}

struct FrameTexts {
  std::vector<std::string> texts;
  std::vector<Label> of_frames;
};

FrameTexts describe_all(const ResolvedFrames& frames, bool lines) {
  FrameTexts result;
  std::unordered_map<std::string, Label> known;
  result.of_frames.reserve(frames.size());
  for (FrameId id = 0; id < frames.size(); ++id) {
    std::string text = describe(frames[id], lines);
    auto [it, added] = known.try_emplace(text, static_cast<Label>(result.texts.size()));
    if (added) result.texts.push_back(std::move(text));
    result.of_frames.push_back(it->second);
  }
  return result;
}

}  // namespace

Result<void> write_folded(const Analysis& analysis, const FoldedOptions& options, ByteSink& sink) {
  const Attribution& attribution = analysis.attribution();
  const StackCounts& counts = analysis.counts();
  FrameTexts frames = describe_all(attribution.frames(), options.lines);
  CallTree tree(attribution.recording().tables(), frames.of_frames);

  // Stacks that read the same are one line. Ordered, so that equal recordings give equal files.
  struct Line {
    CompileIndex compile;
    Phase phase;  // of samples without a compile
    NodeId node;
    std::uint64_t samples;
  };
  std::vector<Line> lines;
  const bool by_time = options.waits && !counts.waits().empty();
  auto add_line = [&](const StackCount& count) {
    bool wanted = options.compiles.empty() ||
                  std::find(options.compiles.begin(), options.compiles.end(), count.compile) !=
                      options.compiles.end();
    if (!wanted) return;
    Line line{kNoCompile, Phase::kRuntime, tree.of(count.stack),
              by_time ? count.ns / 1000 : count.samples};
    if (options.compile_root) {
      line.compile = count.compile;
      if (count.compile == kNoCompile) line.phase = count.phase;
    }
    lines.push_back(line);
  };
  for (const StackCount& count : counts.all()) add_line(count);
  if (by_time)
    for (const StackCount& count : counts.waits()) add_line(count);
  auto key = [](const Line& line) { return std::tuple(line.compile, line.phase, line.node); };
  std::sort(lines.begin(), lines.end(),
            [&](const Line& a, const Line& b) { return key(a) < key(b); });

  BufferedSink out(sink);
  std::vector<NodeId> path;
  for (std::size_t i = 0; i < lines.size();) {
    const Line& line = lines[i];
    std::uint64_t samples = 0;
    for (; i < lines.size() && key(lines[i]) == key(line); ++i) samples += lines[i].samples;
    path.clear();
    for (NodeId node = line.node; node != 0; node = tree.nodes()[node].parent) path.push_back(node);
    bool first = true;
    if (options.compile_root) {
      std::string root =
          line.compile != kNoCompile ? attribution.label(line.compile) : phase_text(line.phase);
      out.text() += '[' + frame_text(root) + ']';
      first = false;
    }
    if (path.empty() && first) out.text() += "<no stack>";
    for (auto node = path.rbegin(); node != path.rend(); ++node) {
      if (!first) out.text() += ';';
      first = false;
      out.text() += frames.texts[tree.nodes()[*node].label];
    }
    out.text() += ' ' + std::to_string(samples) + '\n';
    out.flush_if_full();
  }
  return out.finish();
}

Result<void> export_folded(const ExportRequest& request) {
  ASSIGN_OR_RETURN(std::unique_ptr<ByteSink> sink, request.open());
  FoldedOptions options;
  options.compiles = request.compiles;
  options.waits = !request.compiles.empty() && !request.analysis.cpu_only();
  return write_folded(request.analysis, options, *sink);
}

}  // namespace dynprof
