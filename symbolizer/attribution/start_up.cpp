#include "symbolizer/attribution/start_up.h"

#include <algorithm>
#include <map>
#include <optional>

#include "symbolizer/attribution/spans.h"
#include "symbolizer/base/text.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxBins = 2000;
constexpr std::uint64_t kLeastBinNs = 5'000'000;
constexpr std::size_t kMaxSlices = 16;
// Less of a bin than this is known: it is not.
constexpr double kLeastKnown = 0.2;
constexpr std::size_t kMaxSteps = 20'000'000;  // of waits over bins

constexpr FrameKind kPython = FrameKind::kPython, kNative = FrameKind::kNative;
constexpr std::array kRules = {
    StartUpRule{StartUpPart::kCudaGraphs, kPython, "torch/_inductor/cudagraph_trees.py", ""},
    StartUpRule{StartUpPart::kCudaGraphs, kPython, "torch/cuda/graphs.py", ""},
    StartUpRule{StartUpPart::kTriton, kPython, "triton/compiler/compiler.py", ""},
    StartUpRule{StartUpPart::kCudaContext, kPython, "torch/cuda/__init__.py", "_lazy_init"},
    StartUpRule{StartUpPart::kCudaContext, kNative, "libcuda", "cuInit"},
    StartUpRule{StartUpPart::kCudaContext, kNative, "libcuda", "cuDevicePrimaryCtxRetain"},
    StartUpRule{StartUpPart::kWeights, kPython, "torch/serialization.py", "load"},
    StartUpRule{StartUpPart::kWeights, kPython, "torch/nn/modules/module.py",
                "Module.load_state_dict"},
    StartUpRule{StartUpPart::kWeights, kPython, "safetensors/torch.py", ""},
    StartUpRule{StartUpPart::kWeights, kPython, "transformers/modeling_utils.py",
                "PreTrainedModel.from_pretrained"},
    StartUpRule{StartUpPart::kWeights, kPython, "huggingface_hub/file_download.py", ""},
    StartUpRule{StartUpPart::kImports, kPython, "<frozen importlib._bootstrap>", "_find_and_load"},
};

bool holds(const StartUpRule& rule, const ResolvedFrame& frame) {
  if (rule.kind != frame.kind || frame.unreadable != Unreadable::kNo) return false;
  const std::string_view file = rule.file, function = rule.function;
  if (rule.kind == kNative)
    return base_name(frame.file).starts_with(file) && frame.function.starts_with(function);
  if (!frame.file.ends_with(file)) return false;
  if (frame.file.size() > file.size() && frame.file[frame.file.size() - file.size() - 1] != '/')
    return false;
  return function.empty() || frame.function == function ||
         (frame.function.find('.') == std::string_view::npos &&
          frame.function == function.substr(function.rfind('.') + 1));
}

// When the process began to run its program: its last exec before its first compile.
std::optional<std::uint64_t> begin_of(const Tables& tables, std::int32_t pid,
                                      std::uint64_t before_ns) {
  std::optional<std::uint64_t> begin;
  for (const ProcessLife& life : tables.lives) {
    if (life.pid == pid && life.kind == LifeKind::kExec && life.time_ns <= before_ns)
      begin = life.time_ns;
  }
  return begin;
}

struct CompileTimes {
  std::uint64_t first_ns = 0;                                 // 0: none
  std::vector<std::pair<std::uint64_t, std::uint64_t>> open;  // of the process, by begin
};

CompileTimes compiles_of(const Attribution& attribution, std::int32_t pid) {
  CompileTimes times;
  const std::uint64_t period_ns = attribution.recording().meta().period_ns;
  for (const Compile& compile : attribution.compiles()) {
    if (compile.pid != pid || compile.first_ns == 0 || compile.before_attach) continue;
    times.open.emplace_back(compile.first_ns, compile.first_ns + compile.wall_ns(period_ns));
  }
  std::sort(times.open.begin(), times.open.end());
  if (!times.open.empty()) times.first_ns = times.open.front().first;
  return times;
}

// The end of the last compile before some region ran twice without one, and the begin of that second run.
struct FirstStep {
  std::uint64_t begin_ns = 0, end_ns = 0;
};
std::optional<FirstStep> find_first_step(const Attribution& attribution, std::int32_t pid,
                                         const CompileTimes& compiles) {
  const Tables& tables = attribution.recording().tables();
  std::vector<std::pair<std::uint64_t, StringId>> runs;
  for (const ThreadSpans& thread : attribution.spans().threads()) {
    if (thread.runs.empty() || tables.threads[thread.runs.front().thread].pid != pid) continue;
    for (const RegionRun& run : thread.runs)
      if (!run.backward) runs.emplace_back(run.begin_ns, run.name);
  }
  std::sort(runs.begin(), runs.end());
  std::map<StringId, std::uint64_t> since;  // by region: its run since the last compile
  std::size_t next = 0;
  std::uint64_t last_end_ns = 0;
  for (const auto& [time_ns, name] : runs) {
    for (; next < compiles.open.size() && compiles.open[next].first <= time_ns; ++next) {
      last_end_ns = std::max(last_end_ns, compiles.open[next].second);
      since.clear();
    }
    if (last_end_ns == 0 || time_ns < last_end_ns) continue;
    if (!since.emplace(name, time_ns).second) return FirstStep{last_end_ns, time_ns};
  }
  return std::nullopt;
}

// Time of the main thread by part, in equal bins.
class Bins {
 public:
  Bins(std::uint64_t begin_ns, std::uint64_t end_ns, std::uint64_t period_ns)
      : begin_ns_(begin_ns), end_ns_(end_ns) {
    const std::uint64_t whole = end_ns - begin_ns;
    width_ns_ = std::max({whole / kMaxBins + 1, 2 * std::min(period_ns, whole), kLeastBinNs});
    bins_.resize(whole / width_ns_ + 1);
    runnable_.resize(bins_.size());
  }

  void add(std::uint64_t from_ns, std::uint64_t to_ns, StartUpPart part) {
    spread(from_ns, to_ns, [&](std::size_t bin, std::uint64_t ns) {
      bins_[bin][static_cast<std::size_t>(part)] += ns;
    });
  }
  // No CPU was free: it goes on with what it did before.
  void add_runnable(std::uint64_t from_ns, std::uint64_t to_ns) {
    spread(from_ns, to_ns, [&](std::size_t bin, std::uint64_t ns) { runnable_[bin] += ns; });
  }

  template <class Add>
  void spread(std::uint64_t from_ns, std::uint64_t to_ns, const Add& add) {
    from_ns = std::max(from_ns, begin_ns_);
    to_ns = std::min(to_ns, end_ns_);
    while (from_ns < to_ns && steps_ < kMaxSteps) {
      ++steps_;
      const std::size_t bin = (from_ns - begin_ns_) / width_ns_;
      const std::uint64_t until = std::min(to_ns, begin_ns_ + (bin + 1) * width_ns_);
      add(bin, until - from_ns);
      from_ns = until;
    }
  }

  std::vector<StartUpSlice> slices() const {
    std::vector<StartUpSlice> slices;
    for (std::size_t i = 0; i < bins_.size(); ++i) {
      const std::uint64_t from = begin_ns_ + i * width_ns_;
      const std::uint64_t to = std::min(end_ns_, from + width_ns_);
      if (from >= to) break;
      std::uint64_t known = 0;
      for (std::uint64_t ns : bins_[i]) known += ns;
      const auto most = std::max_element(bins_[i].begin(), bins_[i].end());
      StartUpPart part = static_cast<StartUpPart>(most - bins_[i].begin());
      if (static_cast<double>(known) < kLeastKnown * static_cast<double>(to - from)) {
        part = StartUpPart::kUnknown;
        if (2 * runnable_[i] >= to - from && !slices.empty()) part = slices.back().part;
      }
      if (!slices.empty() && slices.back().part == part)
        slices.back().end_ns = to;
      else
        slices.push_back({from, to, part});
    }
    return slices;
  }

 private:
  std::uint64_t begin_ns_, end_ns_, width_ns_ = 0;
  std::vector<std::array<std::uint64_t, kStartUpParts>> bins_;
  std::vector<std::uint64_t> runnable_;  // by bin
  std::size_t steps_ = 0;
};

// The shortest becomes part of the longer one beside it, until few are left.
void join_short(std::vector<StartUpSlice>& slices) {
  auto length = [](const StartUpSlice& slice) { return slice.end_ns - slice.begin_ns; };
  while (slices.size() > kMaxSlices) {
    const auto shortest =
        std::min_element(slices.begin(), slices.end(),
                         [&](const auto& a, const auto& b) { return length(a) < length(b); });
    const auto i = static_cast<std::size_t>(shortest - slices.begin());
    const bool into_next =
        i == 0 || (i + 1 < slices.size() && length(slices[i + 1]) > length(slices[i - 1]));
    const std::size_t into = into_next ? i + 1 : i - 1;
    slices[into].begin_ns = std::min(slices[into].begin_ns, slices[i].begin_ns);
    slices[into].end_ns = std::max(slices[into].end_ns, slices[i].end_ns);
    slices.erase(shortest);
    // Neighbours may now be equal.
    for (std::size_t at = 1; at < slices.size();) {
      if (slices[at].part != slices[at - 1].part) {
        ++at;
        continue;
      }
      slices[at - 1].end_ns = slices[at].end_ns;
      slices.erase(slices.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }
}

std::optional<StartUp> start_up_of(const Attribution& attribution, const Waits& waits,
                                   const std::vector<StartUpPart>& parts, std::int32_t pid) {
  const Recording& recording = attribution.recording();
  const Tables& tables = recording.tables();
  const CompileTimes compiles = compiles_of(attribution, pid);
  const auto begin = begin_of(tables, pid, compiles.first_ns != 0 ? compiles.first_ns : UINT64_MAX);
  if (!begin) return std::nullopt;
  StartUp found;
  found.pid = pid;
  found.begin_ns = *begin;
  found.end_ns = recording.trailer().end_ns;
  if (!compiles.open.empty()) found.end_ns = 0;
  for (const auto& [from, to] : compiles.open) found.end_ns = std::max(found.end_ns, to);
  const auto step = find_first_step(attribution, pid, compiles);
  if (step) {
    found.end_ns = step->end_ns;
    found.first_step_seen = true;
  }
  if (found.end_ns <= found.begin_ns) return std::nullopt;
  const std::uint64_t period_ns = recording.meta().period_ns;
  Bins bins(found.begin_ns, found.end_ns, period_ns);
  const auto part_of = [&](StackId stack, CompileIndex compile, std::uint64_t time_ns) {
    const StartUpPart part = parts[stack];
    if (compile != kNoCompile && part != StartUpPart::kTriton && part != StartUpPart::kCudaGraphs)
      return StartUpPart::kCompile;
    if (step && time_ns >= step->begin_ns && part == StartUpPart::kOther)
      return StartUpPart::kFirstStep;
    return part;
  };
  const auto is_main = [&](ThreadId id) {
    return tables.threads[id].pid == pid && tables.threads[id].tid == pid;
  };
  attribution.for_each([&](const AttributedSample& at) {
    const Sample& sample = at.sample;
    if (!is_main(sample.thread) || sample.time_ns > found.end_ns + period_ns) return;
    const std::uint64_t half = at.cpu_ns / 2;
    bins.add(sample.time_ns - std::min(sample.time_ns, half), sample.time_ns + half,
             part_of(sample.stack, at.compile, sample.time_ns));
  });
  for (std::size_t i = 0; i < tables.waits.size(); ++i) {
    const Wait& wait = tables.waits[i];
    if (!is_main(wait.thread) || wait.kind == WaitKind::kNone) continue;
    if (wait.kind == WaitKind::kPreempted)
      bins.add_runnable(wait.begin_ns, wait.begin_ns + wait.length_ns);
    if (wait.kind == WaitKind::kPreempted || wait.stack == 0) continue;
    bins.add(wait.begin_ns, wait.begin_ns + wait.length_ns,
             part_of(wait.stack, waits.owner(i).compile, wait.begin_ns));
  }
  found.slices = bins.slices();
  for (const StartUpSlice& slice : found.slices)
    found.ns[static_cast<std::size_t>(slice.part)] += slice.end_ns - slice.begin_ns;
  join_short(found.slices);
  return found;
}

}  // namespace

const char* start_up_text(StartUpPart part) {
  static constexpr std::array<const char*, kStartUpParts> kTexts = {
      "unknown", "CUDA graphs", "Triton",     "compiles", "CUDA context",
      "weights", "imports",     "first step", "own code"};
  return kTexts[static_cast<std::size_t>(part)];
}

std::span<const StartUpRule> start_up_rules() { return kRules; }

std::vector<StartUpPart> start_up_parts(const Tables& tables, const ResolvedFrames& frames) {
  constexpr std::size_t kNone = kRules.size();
  std::vector<std::size_t> of_frame(frames.size(), kNone);
  for (FrameId id = 0; id < frames.size(); ++id) {
    const auto rule = std::find_if(kRules.begin(), kRules.end(),
                                   [&](const StartUpRule& one) { return holds(one, frames[id]); });
    of_frame[id] = static_cast<std::size_t>(rule - kRules.begin());
  }
  std::vector<std::size_t> best(tables.stacks.size(), kNone);
  std::vector<StartUpPart> parts(tables.stacks.size(), StartUpPart::kOther);
  for (StackId id = 1; id < tables.stacks.size(); ++id) {
    const StackNode& node = tables.stacks[id];
    best[id] = std::min(of_frame[node.frame], node.caller < id ? best[node.caller] : kNone);
    if (best[id] != kNone) parts[id] = kRules[best[id]].part;
  }
  return parts;
}

std::vector<StartUp> find_start_ups(const Attribution& attribution, const Waits& waits) {
  const Tables& tables = attribution.recording().tables();
  if (tables.lives.empty()) return {};
  std::vector<std::int32_t> pids;
  for (const Compile& compile : attribution.compiles()) {
    if (compile.before_attach || compile.first_ns == 0) continue;
    if (std::find(pids.begin(), pids.end(), compile.pid) == pids.end()) pids.push_back(compile.pid);
    if (pids.size() == kMaxStartUps) break;
  }
  if (pids.empty()) pids.push_back(attribution.main_pid());
  std::vector<StartUp> found;
  const std::vector<StartUpPart> parts = start_up_parts(tables, attribution.frames());
  for (std::int32_t pid : pids)
    if (auto start_up = start_up_of(attribution, waits, parts, pid))
      found.push_back(std::move(*start_up));
  return found;
}

}  // namespace dynprof
