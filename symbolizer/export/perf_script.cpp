#include "symbolizer/export/perf_script.h"

#include <charconv>
#include <cstdint>
#include <string>

#include "symbolizer/base/text.h"
#include "symbolizer/export/display.h"
#include "symbolizer/export/formats.h"
#include "symbolizer/export/select.h"
#include "symbolizer/profile/timeline.h"

namespace dynprof {
namespace {

class PerfScript {
 public:
  PerfScript(const Analysis& analysis, bool source_lines, ByteSink& sink)
      : source_lines_(source_lines),
        frames_(analysis.attribution().frames()),
        tables_(analysis.tables()),
        index_(analysis.stacks()),
        texts_(index_.function_count()),
        out_(sink) {
    const Meta& meta = analysis.attribution().recording().meta();
    // ": <period> <event>:" ends every sample's first line.
    std::string event = escape_terminal(cap_text(meta.event));
    tail_ =
        ": " + std::to_string(meta.period_ns) + ' ' + (event.empty() ? "cpu-clock" : event) + ":\n";
    for (const Thread& thread : tables_.threads) {
      std::string comm = escape_terminal(tables_.strings[thread.comm]);
      // perf shows a thread without a name by its number.
      if (comm.empty()) comm = ':' + std::to_string(thread.tid);
      heads_.push_back(comm + ' ' + std::to_string(thread.pid) + '/' + std::to_string(thread.tid) +
                       ' ');
    }
  }

  void add(const Sample& sample) {
    std::string& text = out_.text();
    text += heads_[sample.thread];
    append_time(text, sample.time_ns);
    text += tail_;
    // A thread is often where it was one sample before.
    if (sample.stack != last_stack_ || last_text_.empty()) {
      last_text_.clear();
      last_stack_ = sample.stack;
      StackId node = sample.stack;
      for (std::uint32_t depth = index_.depth(node); depth > 0; --depth) {
        append_frame(last_text_, node);
        node = index_.caller(node);
      }
    }
    text += last_text_;
    if (root_missing(sample)) text += "\t               0 [root side missing] ([unknown])\n";
    text += '\n';
    out_.flush_if_full();
  }
  Result<void> finish() { return out_.finish(); }

 private:
  static void append_time(std::string& text, std::uint64_t ns) {
    char digits[24];
    auto end = std::to_chars(digits, digits + sizeof digits, ns / 1'000'000'000).ptr;
    text.append(digits, end);
    text += '.';
    auto micros = static_cast<std::uint32_t>(ns % 1'000'000'000 / 1000);
    for (std::uint32_t unit = 100'000; unit > 0; unit /= 10) {
      text += static_cast<char>('0' + micros / unit % 10);
    }
  }

  void append_frame(std::string& text, StackId node) {
    FrameId frame = index_.frame(node);
    if (const std::uint64_t offset = tables_.frames[frame].offset; offset == 0) {
      text += "\t               0";
    } else {
      char digits[16];
      auto end = std::to_chars(digits, digits + sizeof digits, offset, 16).ptr;
      text += '\t';
      text.append(16 - static_cast<std::size_t>(end - digits), ' ');
      text.append(digits, end);
    }
    std::string& name = texts_[index_.function(node)];
    const ResolvedFrame& resolved = frames_[frame];
    if (name.empty()) name = frame_text(resolved);
    text += name;
    if (!source_lines_ || resolved.source_file.empty()) return;
    text += "  " + escape_terminal(cap_text(resolved.source_file)) + ':' +
            std::to_string(resolved.line) + '\n';
  }

  // " symbol (dso)\n"
  static std::string frame_text(const ResolvedFrame& frame) {
    std::string dso = frame.inlined                      ? "inlined"
                      : frame.kind == FrameKind::kKernel ? "[kernel.kallsyms]"
                      : frame.file.empty()               ? "[unknown]"
                                                         : escape_terminal(cap_text(frame.file));
    return ' ' + escape_terminal(display_name(frame)) + " (" + dso + ")\n";
  }

  const bool source_lines_;
  const ResolvedFrames& frames_;
  const Tables& tables_;
  const StackIndex& index_;
  std::vector<std::string> texts_;  // by function
  StackId last_stack_ = 0;
  std::string last_text_;           // of the frames of that stack
  std::vector<std::string> heads_;  // by ThreadId: "comm pid/tid "
  std::string tail_;
  BufferedSink out_;
};

Result<void> write_samples(const Analysis& analysis, const std::vector<CompileIndex>& compiles,
                           bool source_lines, ByteSink& sink) {
  PerfScript script(analysis, source_lines, sink);
  CompileFilter filter(analysis.attribution(), compiles);
  analysis.attribution().for_each([&](const AttributedSample& at) {
    if (filter.wants(at)) script.add(at.sample);
  });
  return script.finish();
}

}  // namespace

Result<void> write_perf_script(const Analysis& analysis, const std::vector<CompileIndex>& compiles,
                               ByteSink& sink) {
  return write_samples(analysis, compiles, false, sink);
}

Result<void> write_perf_srcline(const Analysis& analysis, const std::vector<CompileIndex>& compiles,
                                ByteSink& sink) {
  return write_samples(analysis, compiles, true, sink);
}

Result<void> export_perf_script(const ExportRequest& request) {
  ASSIGN_OR_RETURN(std::unique_ptr<ByteSink> sink, request.open());
  return write_perf_script(request.analysis, request.compiles, *sink);
}

Result<void> export_perf_srcline(const ExportRequest& request) {
  ASSIGN_OR_RETURN(std::unique_ptr<ByteSink> sink, request.open());
  return write_perf_srcline(request.analysis, request.compiles, *sink);
}

}  // namespace dynprof
