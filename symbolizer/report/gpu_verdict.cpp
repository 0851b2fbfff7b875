#include "symbolizer/report/gpu_verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "symbolizer/base/text.h"
#include "symbolizer/report/rows.h"
#include "symbolizer/report/user_frames.h"

namespace dynprof {
namespace {

constexpr std::uint64_t kLeastNs = 10'000'000;  // from the first work to the last
constexpr std::uint64_t kLeastSamples = 10;
constexpr std::size_t kMaxLines = 3;
constexpr double kLeastShare = 5;  // percent, of a line

using Interval = std::pair<std::uint64_t, std::uint64_t>;

// Of a thread: while a GPU was idle and its next launch had not come. In order; of several GPUs they may overlap.
using LateTimes = std::map<ThreadId, std::vector<Interval>>;

LateTimes late_times(const std::vector<GpuLoad>& loads) {
  LateTimes found;
  for (const GpuLoad& load : loads)
    for (const GpuGap& gap : load.gaps)
      if (gap.late() && gap.thread != kNoThread)
        found[gap.thread].emplace_back(gap.begin_ns, std::min(gap.launched_ns, gap.end_ns));
  for (auto& [thread, times] : found) {
    std::sort(times.begin(), times.end());
    // Apart from each other.
    std::size_t last = 0;
    for (std::size_t i = 1; i < times.size(); ++i) {
      if (times[i].first <= times[last].second)
        times[last].second = std::max(times[last].second, times[i].second);
      else
        times[++last] = times[i];
    }
    times.resize(last + 1);
  }
  return found;
}

std::uint64_t overlap(const std::vector<Interval>& times, std::uint64_t begin_ns,
                      std::uint64_t end_ns) {
  std::uint64_t ns = 0;
  if (end_ns <= begin_ns) return ns;  // in a recording that is wrong
  auto at = std::partition_point(times.begin(), times.end(),
                                 [&](const Interval& one) { return one.second <= begin_ns; });
  for (; at != times.end() && at->first < end_ns; ++at)
    ns += std::min(at->second, end_ns) - std::max(at->first, begin_ns);
  return ns;
}

void add_meanwhile(const Selection& selection, const LateTimes& late, GpuVerdict& verdict) {
  const Tables& tables = selection.tables();
  const ResolvedFrames& frames = selection.attribution().frames();
  const std::vector<FrameId> innermost =
      innermost_user_frames(tables, frames, selection.options.user_packages);
  std::map<std::string, std::uint64_t> sums;
  const auto add = [&](StackId stack, std::uint64_t ns) {
    if (ns == 0) return;
    verdict.meanwhile_ns += ns;
    if (const FrameId frame = innermost[stack]; frame != 0)
      sums[std::string(base_name(user_line_place(frames[frame])))] += ns;
  };
  selection.attribution().for_each([&](const AttributedSample& at) {
    const auto times = late.find(at.sample.thread);
    if (times != late.end() && overlap(times->second, at.sample.time_ns, at.sample.time_ns + 1) > 0)
      add(at.sample.stack, at.cpu_ns);
  });
  const WaitMeanings& meanings = selection.analysis.meanings();
  for (const Wait& wait : tables.waits) {
    const auto times = late.find(wait.thread);
    if (times == late.end() || wait.count != 1 || wait.kind == WaitKind::kNone) continue;
    if (is_idle(meanings.of(wait))) continue;
    add(wait.stack, overlap(times->second, wait.begin_ns, wait.end_ns()));
  }
  if (verdict.meanwhile_ns < kLeastSamples * selection.attribution().recording().meta().period_ns)
    return;
  verdict.meanwhile.assign(sums.begin(), sums.end());
  std::stable_sort(verdict.meanwhile.begin(), verdict.meanwhile.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
}

}  // namespace

GpuVerdict gpu_verdict(const Selection& selection) {
  GpuVerdict verdict;
  const std::vector<GpuLoad> loads = gpu_loads(selection.analysis.gpu());
  verdict.devices = loads.size();
  for (const GpuLoad& load : loads) verdict.times += load.times;
  if (verdict.devices > 0) add_meanwhile(selection, late_times(loads), verdict);
  return verdict;
}

std::string gpu_verdict_text(const GpuVerdict& verdict) {
  const auto& [busy_ns, idle_ns, late_ns] = verdict.times;
  const std::uint64_t whole_ns = busy_ns + idle_ns;
  if (verdict.devices == 0 || whole_ns < kLeastNs * verdict.devices) return {};
  const std::string of =
      fmt::format("of {:.2f} s{}", static_cast<double>(whole_ns) * 1e-9,
                  verdict.devices > 1 ? fmt::format(" of {} GPUs", grouped(verdict.devices)) : "");
  if (busy_ns >= whole_ns / 10 * 9)
    return fmt::format("GPU-bound: busy {:.0f} % {}", share_percent(busy_ns, whole_ns), of);
  const bool late = late_ns * 2 >= idle_ns;
  std::string text = fmt::format("{}idle {:.0f} % {}, {:.0f} % of that before the next launch",
                                 late ? "CPU-bound: " : "", share_percent(idle_ns, whole_ns), of,
                                 share_percent(late_ns, idle_ns));
  if (!late) return text + ", the rest before work that had been launched";
  std::size_t shown = 0;
  for (const auto& [line, ns] : verdict.meanwhile) {
    const double percent = share_percent(ns, verdict.meanwhile_ns);
    if (shown == kMaxLines || percent < kLeastShare) break;
    text += fmt::format("{}{} {:.0f} %", shown++ == 0 ? "; meanwhile at " : ", ", line, percent);
  }
  return text;
}

}  // namespace dynprof
