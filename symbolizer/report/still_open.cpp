#include "symbolizer/report/still_open.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "symbolizer/attribution/compile_lines.h"
#include "symbolizer/attribution/exact_compiles.h"
#include "symbolizer/attribution/phase_groups.h"
#include "symbolizer/attribution/process_tree.h"
#include "symbolizer/attribution/spans.h"
#include "symbolizer/attribution/torch_states.h"
#include "symbolizer/base/amounts.h"
#include "symbolizer/base/text.h"
#include "symbolizer/report/findings.h"
#include "symbolizer/report/sections.h"

namespace dynprof {
namespace {

// A line that was read so long before the end still says where the compile was.
constexpr std::uint64_t kFreshNs = 5'000'000'000;
constexpr std::size_t kMaxPrograms = 3;
constexpr std::size_t kMaxOpen = 64;  // a job has a few; compiles are in the order of their begin

double seconds(std::uint64_t ns) { return static_cast<double>(ns) * 1e-9; }

class Finder {
 public:
  explicit Finder(const Analysis& analysis)
      : analysis_(analysis),
        attribution_(analysis.attribution()),
        tables_(analysis.tables()),
        start_ns_(attribution_.recording().meta().start_ns),
        end_ns_(std::max(attribution_.recording().trailer().end_ns, start_ns_)) {}

  std::vector<StillOpen> find() {
    const std::vector<Compile>& compiles = attribution_.compiles();
    std::vector<StillOpen> found;
    for (CompileIndex i = 0; i < compiles.size(); ++i) {
      if (found.size() == kMaxOpen) break;
      if (!compiles[i].open_at_end || !attribution_.is_last_attempt(i)) continue;
      if (compiles[i].thread != kNoThread) found.push_back(one(i, compiles[i]));
    }
    std::stable_sort(found.begin(), found.end(),
                     [](const StillOpen& a, const StillOpen& b) { return a.age_ns > b.age_ns; });
    return found;
  }

 private:
  StillOpen one(CompileIndex i, const Compile& compile) {
    StillOpen open{.compile = i, .process_ended = process_ended(compile)};
    const CompileProgress* row =
        compile.progress == kNoIndex ? nullptr : &tables_.compile_progress[compile.progress];
    const std::uint64_t until_ns =
        std::max(compile.last_ns, open.process_ended ? compile.last_ns : end_ns_);
    const std::uint64_t begun_ns = begin_of(compile, row, open.least);
    open.age_ns = until_ns - std::min(until_ns, begun_ns);
    const bool at_end = row != nullptr && row->time_ns >= end_ns_;
    set_phase(open, compile, at_end ? row : nullptr);
    if (at_end) {
      set_line(open, row->use, row->line);
      open.node = row->node;
      open.nodes = row->nodes;
    } else {
      set_last_line(open, compile, until_ns);
    }
    if (!open.process_ended) set_wait(open, compile);
    return open;
  }

  bool process_ended(const Compile& compile) const {
    return std::any_of(tables_.lives.begin(), tables_.lives.end(), [&](const ProcessLife& life) {
      return life.pid == compile.pid && life.kind == LifeKind::kExit &&
             life.time_ns >= compile.first_ns;
    });
  }

  // Of the compile, not of its last attempt.
  std::uint64_t begin_of(const Compile& last, const CompileProgress* row, bool& least) const {
    if (row != nullptr && row->begun_ns != 0) return row->begun_ns;
    std::uint64_t begin_ns = last.first_ns;
    for (const Compile& compile : attribution_.compiles()) {
      if (compile.episode != last.episode || compile.first_ns == 0) continue;
      if (compile.started_ns != 0) return compile.started_ns;
      least |= compile.began_before;
      begin_ns = std::min(begin_ns, compile.first_ns);
    }
    least |= last.timing == kNoIndex;  // seen in samples alone
    return begin_ns;
  }

  void set_phase(StillOpen& open, const Compile& compile, const CompileProgress* row) {
    std::optional<Phase> phase;
    if (row != nullptr) {
      if (!states_) states_ = read_torch_states(tables_);
      phase = (*states_)[row->context].phase;
    } else if (compile.timing != kNoIndex && compile.last_ns > 0) {
      phase = attribution_.exact()
                  .at(attribution_.spans().row_of(compile.thread), compile.last_ns - 1)
                  .phase;
    }
    if (!phase || *phase == Phase::kRuntime || *phase == Phase::kUnattributed) return;
    const PhaseGroup group = phase_group(*phase);
    if (group != PhaseGroup::kOther) open.phase = phase_group_name(group).words;
  }

  void set_line(StillOpen& open, LineUse use, const UserCall& line) const {
    open.use = use;
    open.file = tables_.strings[line.file];
    open.function = tables_.strings[line.function];
    open.line = line.line <= INT32_MAX ? static_cast<std::int32_t>(line.line) : 0;
  }

  void set_last_line(StillOpen& open, const Compile& compile, std::uint64_t until_ns) const {
    const Thread& thread = tables_.threads[compile.thread];
    for (auto row = tables_.line_samples.rbegin(); row != tables_.line_samples.rend(); ++row) {
      if (row->time_ns + kFreshNs < until_ns) return;
      const Thread& other = tables_.threads[row->thread];
      if (other.pid != thread.pid || other.tid != thread.tid) continue;
      if (open_compile(tables_.contexts[row->context].torch) != compile.id) continue;
      return set_line(open, row->use, row->line);
    }
  }

  void set_wait(StillOpen& open, const Compile& compile) const {
    const Thread& thread = tables_.threads[compile.thread];
    const Wait* last = nullptr;
    for (const Wait& wait : tables_.waits) {
      const Thread& other = tables_.threads[wait.thread];
      if ((wait.flags & kWaitAtEnd) == 0 || wait.kind == WaitKind::kNone) continue;
      if (other.pid == thread.pid && other.tid == thread.tid) last = &wait;
    }
    if (last == nullptr || last->kind == WaitKind::kPreempted) return;
    open.wait_ns = last->span_ns;
    open.wait = programs(open.compile);
    if (!open.wait.empty()) return;
    const WaitMeaning meaning = analysis_.meanings().of(*last);
    open.wait = meaning == WaitMeaning::kUnknown ? std::string(wait_kind_text(last->kind))
                                                 : std::string(wait_meaning_text(meaning));
  }

  // The children of the compile that still run: "3 g++", "g++ for kernel cpp_fused_add_0".
  std::string programs(CompileIndex compile) const {
    const ProcessTree& tree = analysis_.processes();
    std::map<std::string, std::size_t> counts;
    for (ProcessIndex i : tree.of(compile)) {
      const ChildProcess& child = tree.all()[i];
      const bool inner = child.parent != kNoChild && tree.all()[child.parent].compile == compile;
      if (child.ended || child.worker || inner) continue;
      const std::string title = tree.title(child);
      ++counts[cut(title.substr(0, title.find(' ')), 30)];
    }
    std::string text;
    std::size_t shown = 0;
    for (const auto& [program, count] : counts) {
      if (shown++ == kMaxPrograms) break;
      if (!text.empty()) text += ", ";
      text += count == 1 ? program : fmt::format("{} {}", grouped(count), program);
    }
    return text;
  }

  const Analysis& analysis_;
  const Attribution& attribution_;
  const Tables& tables_;
  const std::uint64_t start_ns_, end_ns_;
  std::optional<std::vector<TorchReading>> states_;
};

}  // namespace

std::vector<StillOpen> still_open(const Analysis& analysis) { return Finder(analysis).find(); }

std::string still_open_text(const Analysis& analysis, const StillOpen& open) {
  const Attribution& attribution = analysis.attribution();
  std::string text = attribution.label(open.compile);
  if (const std::string place = function_place(attribution, open.compile); !place.empty())
    text += " " + cut(place, 50, true);
  text +=
      fmt::format(" for {}{}", open.least ? "at least " : "", format_seconds(seconds(open.age_ns)));
  if (attribution.compiles()[open.compile].began_before) text += " (began before the recording)";
  if (open.process_ended) text += " until its process ended";
  if (!open.phase.empty()) text += ", in " + open.phase;
  if (!open.file.empty())
    text += fmt::format("{} {} {}:{}", open.phase.empty() ? "," : ":", line_use_words(open.use),
                        cut(base_name(open.file), 40, true), open.line);
  if (open.node != 0)
    text += fmt::format(", node {} of {}", grouped(open.node), grouped(open.nodes));
  if (!open.wait.empty())
    text += fmt::format("; waiting for {}, {}", open.wait, format_seconds(seconds(open.wait_ns)));
  return text;
}

}  // namespace dynprof
