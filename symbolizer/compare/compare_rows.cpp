#include "symbolizer/compare/compare_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "symbolizer/attribution/exact_compiles.h"
#include "symbolizer/attribution/gpu_summary.h"
#include "symbolizer/attribution/phase_groups.h"
#include "symbolizer/base/text.h"
#include "symbolizer/export/display.h"
#include "symbolizer/report/rows.h"
#include "symbolizer/report/sections.h"
#include "symbolizer/report/user_frames.h"

namespace dynprof {
namespace {

// "demo/train.py" of "/work/demo/train.py": two checkouts of a program lie in two folders.
std::string_view short_path(std::string_view path) {
  const std::size_t last = path.rfind('/');
  if (last == std::string_view::npos || last == 0) return path;
  const std::size_t before = path.rfind('/', last - 1);
  return before == std::string_view::npos ? path : path.substr(before + 1);
}

std::string compiled_name(const Attribution& attribution, CompileIndex index) {
  const Compile& compile = attribution.compiles()[index];
  const CompiledFunction function = attribution.function(index);
  std::string name =
      function.qualname.empty() ? "(function not known)" : std::string(function.qualname);
  if (function.unreadable == Unreadable::kNo && !function.file.empty())
    name += fmt::format(" {}", short_path(function.file));
  if (compile.kind != CompileKind::kForward)
    name = fmt::format("{} of {}", compile_kind_text(compile.kind), name);
  return name;
}

std::string function_name(const ResolvedFrame& frame) {
  return fmt::format(
      "{} {}", display_name(frame),
      frame.kind == FrameKind::kPython ? short_path(frame.file) : base_name(frame.file));
}

bool is_generated(const ResolvedFrame& frame) {
  return frame.kind == FrameKind::kPython
             ? frame.generated
             : frame.kind == FrameKind::kNative && is_inductor_file(frame.file);
}

// Which samples are of work for compiles.
class CompileWork {
 public:
  explicit CompileWork(const Analysis& analysis) : helpers_(helper_threads(analysis)) {}
  bool has(const StackCount& count) const {
    return count.compile != kNoCompile || count.phase != Phase::kRuntime || helpers_[count.thread];
  }

 private:
  std::vector<bool> helpers_;
};

}  // namespace

CompileTimes compile_times(const Analysis& analysis) {
  const Attribution& attribution = analysis.attribution();
  const std::uint64_t period_ns = attribution.recording().meta().period_ns;
  CompileTimes times;
  std::vector<CompileIndex> seen;
  for (CompileIndex i = 0; i < attribution.compiles().size(); ++i) {
    const Compile& compile = attribution.compiles()[i];
    if (compile.before_attach || compile.first_ns == 0) {
      ++times.left_out;
      continue;
    }
    seen.push_back(i);
    times.exact = times.exact && compile.timing != kNoIndex;
    // Without the compiles inside it, which have rows of their own.
    const ExactCompile* timing = attribution.timing(i);
    const std::uint64_t wall_ns = compile.wall_ns(period_ns);
    const std::uint64_t nested_ns = timing == nullptr ? 0 : std::min(wall_ns, timing->nested_ns);
    times.wall[compiled_name(attribution, i)].add(wall_ns - nested_ns, 1);
    const CompileWaits& waits = analysis.waits().of(i);
    if (waits.known) times.ready_ns += waits.runnable_ns;
  }
  for (CompileIndex i : seen) {
    if (times.exact) {
      const GroupTimes groups = group_times(attribution, i);
      for (std::size_t group = 0; group < kPhaseGroups; ++group)
        if (groups.ns[group] > 0)
          times.groups[phase_group_name(static_cast<PhaseGroup>(group)).words].add(groups.ns[group],
                                                                                   1);
      continue;
    }
    for (const StackCount& count : analysis.counts().of(i))
      times.groups[phase_group_name(phase_group(count.phase)).words].add(count.ns, count.samples);
  }
  return times;
}

SampledTimes function_times(const Analysis& analysis) {
  const ResolvedFrames& frames = analysis.attribution().frames();
  const Tables& tables = analysis.tables();
  std::vector<std::string> names(frames.size());
  const CompileWork work(analysis);
  SampledTimes times;
  for (const StackCount& count : analysis.counts().all()) {
    const FrameId frame = tables.stacks[count.stack].frame;
    std::string& name = names[frame];
    if (count.stack != 0 && name.empty()) name = function_name(frames[frame]);
    TimesByName& side = work.has(count) ? times.compiling : times.running;
    side[count.stack == 0 ? "(no stack)" : name].add(count.ns, count.samples);
  }
  return times;
}

SampledTimes user_line_times(const Analysis& analysis) {
  const ReportOptions options;
  const Selection selection = select_samples(analysis, options);
  const ResolvedFrames& frames = analysis.attribution().frames();
  SampledTimes times;
  for (const UserLineRow& row : user_line_rows(selection)) {
    const ResolvedFrame& frame = frames[row.frame];
    const std::string name =
        fmt::format("{}:{} {}", short_path(frame.file),
                    frame.line > 0 ? frame.line : frame.first_line, frame.function);
    if (row.compiling_samples > 0)
      times.compiling[name].add(row.compiling_ns, row.compiling_samples);
    if (row.samples > row.compiling_samples)
      times.running[name].add(row.ns - row.compiling_ns, row.samples - row.compiling_samples);
  }
  return times;
}

TimesByName generated_times(const Analysis& analysis) {
  const ResolvedFrames& frames = analysis.attribution().frames();
  const Tables& tables = analysis.tables();
  // Per stack the innermost frame of generated code, 0: none.
  std::vector<FrameId> innermost(tables.stacks.size(), 0);
  for (StackId id = 1; id < tables.stacks.size(); ++id) {
    const StackNode& node = tables.stacks[id];
    if (is_generated(frames[node.frame]))
      innermost[id] = node.frame;
    else if (node.caller < id)
      innermost[id] = innermost[node.caller];
  }
  const CompileWork work(analysis);
  TimesByName times;
  for (const StackCount& count : analysis.counts().all()) {
    const FrameId frame = innermost[count.stack];
    if (frame == 0 || work.has(count)) continue;
    times[function_name(frames[frame])].add(count.ns, count.samples);
  }
  return times;
}

TimesByName gpu_kernel_times(const Analysis& analysis) {
  TimesByName times;
  if (analysis.gpu().empty()) return times;
  for (const GpuKernelRow& row : summarize(analysis.gpu()).kernels)
    times[gpu_work_name(analysis.tables(), row)].add(row.total_ns, row.calls);
  return times;
}

}  // namespace dynprof
