#include "symbolizer/report/findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "symbolizer/attribution/compile_lines.h"
#include "symbolizer/attribution/exact_compiles.h"
#include "symbolizer/attribution/process_command.h"
#include "symbolizer/attribution/process_tree.h"
#include "symbolizer/base/text.h"
#include "symbolizer/report/triton_rows.h"

namespace dynprof {
namespace {

// From a hostile target; the summary shows a few.
constexpr std::size_t kMaxGroups = 10'000;
constexpr std::size_t kLongest = 3;

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// torch 2.6: "recompile_limit reached" and "cache_size_limit reached", later "Dynamo recompile limit
// exceeded"; with fullgraph=True an exception of this name.
bool is_limit(std::string_view failed) {
  return has(failed, "recompile limit exceeded") || has(failed, "recompile_limit") ||
         has(failed, "cache_size_limit") || has(failed, "FailOnRecompileLimitHit");
}

NamedTimes by_time(const std::map<std::string, std::uint64_t>& sums) {
  NamedTimes times(sums.begin(), sums.end());
  std::stable_sort(times.begin(), times.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  return times;
}

class Finder {
 public:
  explicit Finder(const Selection& selection)
      : selection_(selection),
        attribution_(selection.attribution()),
        tree_(selection.analysis.processes()),
        compiles_(attribution_.compiles()) {}

  Findings find() {
    const Recording& recording = attribution_.recording();
    start_ns_ = recording.meta().start_ns;
    end_ns_ = std::max(recording.trailer().end_ns, start_ns_);
    found_.recorded_ns = end_ns_ - start_ns_;
    add_times();
    found_.open = still_open(selection_.analysis);
    add_waits();
    add_one_off();
    add_history();
    add_breaks();
    add_triton();
    found_.gpu = gpu_verdict(selection_);
    found_.cpu = cpu_use(selection_);
    return std::move(found_);
  }

 private:
  std::uint64_t wall_ns(CompileIndex i) const {
    std::uint64_t wall = compiles_[i].wall_ns(attribution_.recording().meta().period_ns);
    const ExactCompile* timing = attribution_.timing(i);
    return wall - std::min(wall, timing == nullptr ? 0 : timing->nested_ns);
  }

  void add_triton() {
    const std::vector<TritonRow> rows = triton_rows(selection_.analysis);
    std::set<std::pair<std::int32_t, std::string_view>> kernels;
    for (const TritonRow& row : rows) {
      kernels.emplace(row.pid, row.kernel);
      found_.triton_ns += row.stall_ns;
    }
    found_.triton_kernels = kernels.size();
    if (rows.empty()) return;
    const TritonRow& first = rows.front();
    found_.triton_first =
        first.kernel.empty() ? "a kernel whose name could not be read" : first.kernel;
    if (first.caller != 0)
      found_.triton_first += " at " + caller_place(attribution_.frames(), first.caller);
  }

  void add_times() {
    std::vector<Interval> open;
    std::set<std::string> functions;
    std::set<std::int32_t> processes;
    GroupTimes cpu;
    for (CompileIndex i = 0; i < compiles_.size(); ++i) {
      const Compile& compile = compiles_[i];
      if (compile.before_attach) {
        ++found_.before;
        found_.before_ns += wall_ns(i);
        continue;
      }
      ++found_.compiles;
      found_.open_at_start += compile.began_before ? 1 : 0;
      found_.open_at_end += compile.open_at_end ? 1 : 0;
      processes.insert(compile.pid);
      if (std::string place = function_place(attribution_, i); !place.empty())
        functions.insert(fmt::format("{} {}", compile.pid, code_of(i, place)));
      if (compile.first_ns == 0) continue;
      found_.thread_ns += wall_ns(i);
      found_.longest.push_back(i);
      const std::uint64_t end =
          compile.first_ns + compile.wall_ns(attribution_.recording().meta().period_ns);
      // A recording without an end may not say how long it was.
      const bool known = found_.recorded_ns > 0;
      open.emplace_back(known ? std::max(compile.first_ns, start_ns_) : compile.first_ns,
                        known ? std::min(end, end_ns_) : end);
      found_.groups.add(group_times(attribution_, i));
    }
    if (found_.groups.whole() == 0) {
      found_.groups_are_cpu = true;
      for (const StackCount& count : selection_.analysis.counts().all()) {
        if (count.compile != kNoCompile) found_.groups.add(count.phase, count.ns);
      }
    }
    found_.functions = functions.size();
    found_.processes = processes.size();
    found_.compiling_ns = union_ns(open);
    std::stable_sort(found_.longest.begin(), found_.longest.end(),
                     [this](CompileIndex a, CompileIndex b) { return wall_ns(a) > wall_ns(b); });
    if (found_.longest.size() > kLongest) found_.longest.resize(kLongest);
  }

  // A wait for a child is named after its program.
  void add_waits() {
    const Waits& waits = selection_.analysis.counts().recorded_waits();
    const Tables& tables = selection_.tables();
    std::map<std::string, std::uint64_t> sums;
    for (std::size_t i = 0; !waits.empty() && i < tables.waits.size(); ++i) {
      const Wait& wait = tables.waits[i];
      if (wait.kind == WaitKind::kNone || wait.kind == WaitKind::kPreempted) continue;
      if (wait.length_ns <= wait.runnable_ns) continue;
      std::uint64_t ns = 0;
      for (const Waits::Part& part : waits.parts(tables, i)) {
        if (part.owner.compile != kNoCompile) ns += part.ns;
      }
      if (ns == 0) continue;
      // Without the time it could have run.
      const double waited = static_cast<double>(wait.length_ns - wait.runnable_ns) /
                            static_cast<double>(wait.length_ns);
      ns = static_cast<std::uint64_t>(static_cast<double>(ns) * std::min(1.0, waited));
      found_.wait_ns += ns;
      const Thread& thread = tables.threads[wait.thread];
      std::string what = std::string(wait_kind_text(wait.kind));
      if (const ChildProcess* child = tree_.waited_for(thread.pid, thread.tid, wait)) {
        const std::string title = tree_.title(*child);
        what = title.substr(0, title.find(' '));
      } else if (const WaitMeaning meaning = selection_.analysis.meanings().of(wait);
                 meaning != WaitMeaning::kUnknown) {
        what = wait_meaning_text(meaning);
      }
      sums[what] += ns;
    }
    found_.waits = by_time(sums);
    std::map<std::int32_t, std::uint64_t> lock;
    CompileLines lines(attribution_);
    for (CompileIndex i = 0; i < compiles_.size(); ++i) {
      for (const LockWaiter& waiter : lines.waiters(i)) lock[waiter.tid] += waiter.ns;
      const CompileWaits& of = waits.of(i);
      if (!of.known) continue;
      found_.scheduled_ns += of.wall_ns;
      found_.runnable_ns += of.runnable_ns;
    }
    found_.lock_waits.assign(lock.begin(), lock.end());
    std::stable_sort(found_.lock_waits.begin(), found_.lock_waits.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
  }

  void add_one_off() {
    std::map<std::string, std::uint64_t> sums;
    for (CompileIndex i = 0; i < compiles_.size(); ++i) {
      const ProcessJobs::OneOff one_off = selection_.analysis.jobs().one_off(i);
      found_.one_off_ns += one_off.wall_ns;
      for (const auto& [purpose, ns] : one_off.by_purpose) sums[purpose_text(purpose)] += ns;
    }
    found_.one_off = by_time(sums);
  }

  // The code that was compiled, as text: of a compile that torch refuses at its limit only file and line are known, and the
  // last part of the name.
  std::string code_of(CompileIndex i, const std::string& place) const {
    const CompiledFunction function = attribution_.function(i);
    if (function.file.empty() || function.unreadable != Unreadable::kNo) return place;
    return fmt::format("{}:{} {}", function.file, function.line, function.name);
  }

  // What torch notes it notes once for all attempts.
  void add_history() {
    std::map<std::pair<std::int32_t, std::string>, std::size_t> groups;
    std::map<std::pair<std::int32_t, TraceId>, std::uint64_t> backward_ns;
    for (CompileIndex i = 0; i < compiles_.size(); ++i) {
      if (compiles_[i].kind == CompileKind::kBackward)
        backward_ns[{compiles_[i].pid, compiles_[i].id}] += wall_ns(i);
    }
    for (CompileIndex i = 0; i < compiles_.size(); ++i) {
      const PastCompile* past = attribution_.past(i);
      if (past == nullptr || compiles_[i].before_attach || !attribution_.is_last_attempt(i))
        continue;
      if (past->caches) {
        found_.caches_known = true;
        found_.caches.fx_hits += past->caches->fx_hits;
        found_.caches.fx_misses += past->caches->fx_misses;
        found_.caches.aot_hits += past->caches->aot_hits;
        found_.caches.aot_misses += past->caches->aot_misses;
      }
      const bool limit = past->failed && is_limit(*past->failed);
      if (past->failed && !limit) found_.failures.push_back({i, *past->failed});
      if (!past->recompile_reason && !limit) continue;
      std::string place = function_place(attribution_, i);
      if (place.empty()) place = attribution_.label(i);
      auto [at, added] =
          groups.try_emplace({compiles_[i].pid, code_of(i, place)}, found_.recompiles.size());
      if (added) {
        if (found_.recompiles.size() == kMaxGroups) {
          groups.erase(at);
          continue;
        }
        found_.recompiles.push_back({.pid = compiles_[i].pid, .place = place});
      }
      Recompiles& group = found_.recompiles[at->second];
      if (place.size() > group.place.size()) group.place = std::move(place);
      if (limit) {
        group.limit = *past->failed;
        group.limit_is_error = has(*past->failed, "FailOnRecompileLimitHit");
      } else {
        group.compiles.push_back(i);
        group.cost_ns += wall_ns(i) + backward_ns[{compiles_[i].pid, compiles_[i].id}];
      }
      if (past->recompile_reason) group.reasons.push_back(*past->recompile_reason);
    }
    std::stable_sort(
        found_.recompiles.begin(), found_.recompiles.end(),
        [](const Recompiles& a, const Recompiles& b) { return a.cost_ns > b.cost_ns; });
  }

  void add_break(const PastBreak& one, CompileIndex compile) {
    std::string reason = break_reason(one.reason);
    auto [at, added] =
        places_.try_emplace(std::tuple(one.file, one.line, reason), found_.breaks.size());
    if (added && found_.breaks.size() == kMaxGroups) {
      places_.erase(at);
      return;
    }
    if (added) {
      found_.breaks.push_back({one.file, one.line, std::move(reason), one.reason, 0, compile,
                               has(one.reason, "DDPOptimizer")});
    }
    ++found_.breaks[at->second].count;
  }

  void add_breaks() {
    bool any = false;
    for (CompileIndex i = 0; i < compiles_.size(); ++i) {
      if (compiles_[i].before_attach) continue;
      const std::vector<PastBreak>* breaks = attribution_.graph_breaks(i);
      if (breaks == nullptr) continue;
      for (const PastBreak& one : *breaks) add_break(one, i);
      any |= !breaks->empty();
    }
    // torch's list of them, where it is not known which compile each belongs to.
    if (!any && found_.before == 0) {
      for (const PastBreak& one : attribution_.history().graph_breaks) add_break(one, kNoCompile);
    }
    std::stable_sort(found_.breaks.begin(), found_.breaks.end(),
                     [](const BreakPlace& a, const BreakPlace& b) {
                       return std::tuple(a.intended, b.count) < std::tuple(b.intended, a.count);
                     });
  }

  const Selection& selection_;
  const Attribution& attribution_;
  const ProcessTree& tree_;
  const std::vector<Compile>& compiles_;
  std::uint64_t start_ns_ = 0, end_ns_ = 0;
  std::map<std::tuple<std::string, std::int32_t, std::string>, std::size_t> places_;
  Findings found_;
};

}  // namespace

Findings find(const Selection& selection) { return Finder(selection).find(); }

std::string function_place(const Attribution& attribution, CompileIndex index) {
  CompiledFunction function = attribution.function(index);
  if (function.qualname.empty() || function.unreadable != Unreadable::kNo)
    return std::string(function.qualname);
  return fmt::format("{} {}:{}", function.qualname, base_name(function.file), function.line);
}

std::string break_reason(std::string_view text) {
  constexpr std::string_view kExplanation = "\n  Explanation: ";
  constexpr std::size_t kMost = 1000;
  std::string reason(text.substr(0, std::min(kMost, text.find('\n'))));
  if (const std::size_t at = text.find(kExplanation); at != std::string_view::npos) {
    const std::string_view rest = text.substr(at + kExplanation.size());
    reason += ": " + std::string(rest.substr(0, std::min(kMost, rest.find('\n'))));
  }
  return reason.empty() ? "reason not known" : reason;
}

bool find_size_mismatch(const std::string& reason, SizeMismatch& found) {
  static constexpr std::string_view kTensor = "tensor '", kSize = "' size mismatch at index ",
                                    kExpected = ". expected ", kActual = ", actual ";
  constexpr std::size_t kMaxName = 200, kMaxDigits = 20;
  const std::size_t size = reason.find(kSize);
  if (size == std::string::npos) return false;
  const std::size_t tensor = reason.rfind(kTensor, size);
  if (tensor == std::string::npos || size - tensor > kMaxName) return false;
  found.tensor = reason.substr(tensor + kTensor.size(), size - tensor - kTensor.size());
  std::size_t at = size + kSize.size();
  auto number = [&] {
    std::string digits;
    while (at < reason.size() && digits.size() < kMaxDigits && reason[at] >= '0' &&
           reason[at] <= '9')
      digits += reason[at++];
    return digits;
  };
  const std::string dimension = number();
  if (dimension.empty() || dimension.size() > 3) return false;
  found.dimension = static_cast<std::uint32_t>(std::stoul(dimension));
  if (reason.compare(at, kExpected.size(), kExpected) != 0) return false;
  at += kExpected.size();
  found.expected = number();
  if (reason.compare(at, kActual.size(), kActual) != 0) return false;
  at += kActual.size();
  found.actual = number();
  return !found.expected.empty() && !found.actual.empty();
}

}  // namespace dynprof
