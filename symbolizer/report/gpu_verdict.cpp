#include "symbolizer/report/gpu_verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "symbolizer/base/intervals.h"
#include "symbolizer/base/text.h"
#include "symbolizer/report/rows.h"
#include "symbolizer/report/user_frames.h"

namespace dynprof {
namespace {

constexpr std::uint64_t kLeastNs = 10'000'000;  // from the first work to the last
constexpr std::uint64_t kLeastSamples = 10;
constexpr std::size_t kMaxLines = 3;
constexpr double kLeastShare = 5;  // percent, of a line

// Of a thread: while a GPU was idle and its next launch had not come.
using LateTimes = std::map<ThreadId, std::vector<Interval>>;

// What threads did in some of their late times is asked for one verdict.
struct Question {
  GpuVerdict* verdict = nullptr;
  LateTimes late;                              // of a thread in order, apart from each other
  std::map<std::string, std::uint64_t> lines;  // what the answer is added up from

  // `begin_ns` to `end_ns`: the part of the gap that is asked about.
  void add(const GpuGap& gap, std::uint64_t begin_ns, std::uint64_t end_ns) {
    end_ns = std::min(end_ns, gap.launched_ns);
    if (gap.late() && gap.thread != kNoThread && begin_ns < end_ns)
      late[gap.thread].emplace_back(begin_ns, end_ns);
  }
};

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

// Answers all questions in one pass over the samples and waits.
void add_meanwhile(const Selection& selection, std::vector<Question>& questions) {
  const Tables& tables = selection.tables();
  const ResolvedFrames& frames = selection.attribution().frames();
  const std::vector<FrameId> innermost =
      innermost_user_frames(tables, frames, selection.options.user_packages);
  struct Asked {
    Question* question;
    const std::vector<Interval>* late;
  };
  std::map<ThreadId, std::vector<Asked>> by_thread;
  for (Question& question : questions)
    for (auto& [thread, times] : question.late) {
      join_intervals(times);  // those of several GPUs may overlap
      by_thread[thread].push_back({&question, &times});
    }
  if (by_thread.empty()) return;
  const auto add = [&](Question& question, StackId stack, std::uint64_t ns) {
    if (ns == 0) return;
    question.verdict->meanwhile_ns += ns;
    if (const FrameId frame = innermost[stack]; frame != 0)
      question.lines[std::string(base_name(user_line_place(frames[frame])))] += ns;
  };
  selection.attribution().for_each([&](const AttributedSample& at) {
    const auto asked = by_thread.find(at.sample.thread);
    if (asked == by_thread.end()) return;
    for (const Asked& one : asked->second)
      if (overlap(*one.late, at.sample.time_ns, at.sample.time_ns + 1) > 0)
        add(*one.question, at.sample.stack, at.cpu_ns);
  });
  const WaitMeanings& meanings = selection.analysis.meanings();
  for (const Wait& wait : tables.waits) {
    const auto asked = by_thread.find(wait.thread);
    if (asked == by_thread.end() || wait.count != 1 || wait.kind == WaitKind::kNone) continue;
    if (is_idle(meanings.of(wait))) continue;
    for (const Asked& one : asked->second)
      add(*one.question, wait.stack, overlap(*one.late, wait.begin_ns, wait.end_ns()));
  }
  const std::uint64_t period_ns = selection.attribution().recording().meta().period_ns;
  for (const Question& question : questions) {
    GpuVerdict& verdict = *question.verdict;
    if (verdict.meanwhile_ns < kLeastSamples * period_ns) continue;
    verdict.meanwhile.assign(question.lines.begin(), question.lines.end());
    std::stable_sort(verdict.meanwhile.begin(), verdict.meanwhile.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
  }
}

// While a run of the region was under way.
void add_times(const GpuRegionRow& row, const std::vector<GpuLoad>& loads, Question& question) {
  GpuVerdict& verdict = *question.verdict;
  verdict.devices = verdict.gpus = row.windows.size();
  for (const GpuLoad& load : loads) {
    const auto windows = row.windows.find(load.device);
    if (load.pid != row.pid || windows == row.windows.end()) continue;
    for (auto [begin_ns, end_ns] : windows->second) {
      begin_ns = std::max(begin_ns, load.first_ns);
      end_ns = std::min(end_ns, load.last_ns);
      if (end_ns <= begin_ns) continue;
      load.for_each_gap_in(begin_ns, end_ns,
                           [&](const GpuGap& gap, std::uint64_t from_ns, std::uint64_t to_ns) {
                             question.add(gap, from_ns, to_ns);
                           });
      GpuTimes times = load.idle_in(begin_ns, end_ns);
      times.busy_ns = end_ns - begin_ns - times.idle_ns;
      verdict.times += times;
    }
  }
}

// One whose UUID is not known is no other's.
void count_gpus(const GpuWork& gpu, const std::vector<GpuLoad>& loads, GpuVerdict& verdict) {
  std::set<std::int32_t> processes;
  std::set<std::vector<std::uint32_t>> uuids;
  for (const GpuLoad& load : loads) {
    processes.insert(load.pid);
    const auto uuid = gpu.device_uuid(load.pid, load.device);
    if (uuid)
      uuids.emplace(uuid->begin(), uuid->end());
    else
      ++verdict.gpus;
  }
  verdict.gpus += uuids.size();
  verdict.processes = processes.size();
}

std::string of_gpus(const GpuVerdict& verdict) {
  if (verdict.devices <= 1) return {};
  std::string text =
      fmt::format(" of {} GPU{}", grouped(verdict.gpus), verdict.gpus == 1 ? "" : "s");
  if (verdict.gpus < verdict.devices)
    text += fmt::format(" shared by {} processes", grouped(verdict.processes));
  return text;
}

}  // namespace

GpuVerdict gpu_verdict(const Selection& selection) {
  GpuVerdict verdict;
  const std::vector<GpuLoad> loads = gpu_loads(selection.analysis.gpu());
  verdict.devices = loads.size();
  if (verdict.devices == 0) return verdict;
  count_gpus(selection.analysis.gpu(), loads, verdict);
  std::vector<Question> questions(1);
  questions[0].verdict = &verdict;
  for (const GpuLoad& load : loads) {
    verdict.times += load.times;
    for (const GpuGap& gap : load.gaps) questions[0].add(gap, gap.begin_ns, gap.end_ns);
  }
  add_meanwhile(selection, questions);
  return verdict;
}

std::vector<GpuVerdict> gpu_region_verdicts(const Selection& selection, const GpuSummary& summary) {
  std::vector<GpuVerdict> verdicts(std::min(summary.regions.size(), kMaxGpuRegionVerdicts));
  std::vector<Question> questions(verdicts.size());
  for (std::size_t i = 0; i < verdicts.size(); ++i) {
    questions[i].verdict = &verdicts[i];
    add_times(summary.regions[i], summary.loads, questions[i]);
  }
  add_meanwhile(selection, questions);
  return verdicts;
}

GpuBound gpu_bound(const GpuVerdict& verdict) {
  const std::uint64_t whole_ns = verdict.whole_ns();
  if (verdict.devices == 0 || whole_ns < kLeastNs * verdict.devices) return GpuBound::kUnknown;
  if (verdict.times.busy_ns >= whole_ns / 10 * 9) return GpuBound::kGpu;
  return verdict.times.late_ns * 2 >= verdict.times.idle_ns ? GpuBound::kCpu : GpuBound::kOther;
}

std::string gpu_verdict_text(const GpuVerdict& verdict) {
  const auto& [busy_ns, idle_ns, late_ns] = verdict.times;
  const std::uint64_t whole_ns = verdict.whole_ns();
  const GpuBound bound = gpu_bound(verdict);
  if (bound == GpuBound::kUnknown) return {};
  const std::string of =
      fmt::format("of {:.2f} s{}", static_cast<double>(whole_ns) * 1e-9, of_gpus(verdict));
  if (bound == GpuBound::kGpu)
    return fmt::format("GPU-bound: busy {:.0f} % {}", share_percent(busy_ns, whole_ns), of);
  const bool late = bound == GpuBound::kCpu;
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
