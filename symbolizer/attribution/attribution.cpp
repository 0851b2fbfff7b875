#include "symbolizer/attribution/attribution.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "symbolizer/attribution/compile_progress.h"
#include "symbolizer/attribution/exact_compiles.h"
#include "symbolizer/attribution/ledger.h"
#include "symbolizer/attribution/phases.h"
#include "symbolizer/attribution/ranks.h"
#include "symbolizer/attribution/sample_times.h"
#include "symbolizer/attribution/spans.h"
#include "symbolizer/attribution/thread_clocks.h"
#include "symbolizer/attribution/torch_history.h"
#include "symbolizer/attribution/torch_states.h"
#include "symbolizer/attribution/tracker.h"
#include "symbolizer/base/text.h"

namespace dynprof {
namespace {

// Work that is a compile's wherever it runs. The other phases without a compile on their stack are
// ordinary run time: replaying a CUDA graph, launching through the autotuner.
bool is_detached_work(Phase phase) {
  return phase == Phase::kKernelCompile || phase == Phase::kAutotune;
}

Phase phase_inside(const Compile& compile, const StackPhase& stack, const TorchReading& torch) {
  if (torch.speaks && torch.phase) return *torch.phase;
  if (stack.phase != Phase::kRuntime) return stack.phase;
  return compile.kind == CompileKind::kBackward ? Phase::kAotAutograd : Phase::kDynamo;
}

// What a compile is called after the process prefix: "0/0", "0/1_1", "backward 0/0", "0/0.2".
std::string suffix_of(const Compile& compile) {
  std::string text;
  if (compile.attempt > 0) text += fmt::format("_{}", compile.attempt);
  if (compile.repeat > 1) text += fmt::format(".{}", compile.repeat);
  return text;
}

std::int32_t find_main_pid(const Recording& recording) {
  const Tables& tables = recording.tables();
  if (recording.meta().target_pid < 0) return 0;  // each compile says whose it is
  if (recording.meta().target_pid != 0) return recording.meta().target_pid;
  if (!tables.processes.empty()) return tables.processes.front().pid;
  return tables.threads.empty() ? 0 : tables.threads.front().pid;
}

}  // namespace

struct Attribution::State {
  explicit State(const Recording& from)
      : recording(from),
        main_pid(find_main_pid(from)),
        copies(read_generated_copies(from.tables(), main_pid)),
        frames(from.tables(), copies),
        stacks(classify_stacks(from.tables())),
        torch(read_torch_states(from.tables())),
        spans(from.tables(), torch),
        clocks(from.tables(), spans),
        times(from, spans, clocks),
        exact(spans),
        history(read_history(from.tables(), from.meta().realtime_offset_ns)) {
    ask_samples();
    merge_exact(recording, spans, exact, compiles, answers);
    merge_history(recording, history, compiles);
    join_progress(recording, torch, compiles);
    order_compiles(compiles, answers);
    std::set<std::int32_t> compiling;
    for (const Compile& compile : compiles) compiling.insert(compile.pid);
    ranks = read_ranks(recording.tables(), compiling);
    cut_at_start();
    count();
    join_breaks();
  }

  void ask_samples();
  void cut_at_start();
  void join_breaks();
  void count();
  Phase phase_of(const Sample& sample, CompileIndex compile) const;

  const Recording& recording;
  std::int32_t main_pid;
  std::vector<GeneratedCopy> copies;
  ResolvedFrames frames;
  std::vector<StackPhase> stacks;
  std::vector<TorchReading> torch;
  Spans spans;
  ThreadClocks clocks;
  SampleTimes times;
  ExactCompiles exact;
  TorchHistory history;
  std::vector<Compile> compiles;
  std::map<std::int32_t, std::string> ranks;  // by pid
  std::vector<Answer> answers;
  std::map<std::uint32_t, CompileIndex> last_attempts;    // by episode
  std::map<CompileIndex, std::vector<PastBreak>> breaks;  // that the recording has rows of
  Agreement agreement;
  std::uint64_t attributed = 0, unattributed = 0, runtime = 0, detached = 0;
};

// T and F.
void Attribution::State::ask_samples() {
  CompileTracker tracker(recording.tables(), torch);
  std::vector<std::vector<std::size_t>> pending(tracker.row_count());
  // Samples in the call of a compile whose id came later.
  struct OpenCall {
    std::uint64_t call = 0;
    std::uint64_t first_ns = 0;
    std::vector<std::size_t> unknown{};
  };
  std::vector<OpenCall> calls(tracker.row_count());
  std::vector<std::pair<CompileIndex, std::uint64_t>> seen_first;
  answers.reserve(static_cast<std::size_t>(recording.sample_count()));
  recording.for_each_sample([&](const Sample& sample) {
    const StackPhase& stack = stacks[sample.stack];
    Decision decision = tracker.add(sample, stack);
    std::vector<std::size_t>& undecided = pending[tracker.row(sample.thread)];
    if (decision.settles) {
      for (std::size_t index : undecided) {
        if (*decision.settles) answers[index].phase = Phase::kUnattributed;
      }
      undecided.clear();
    }
    Answer answer;
    switch (decision.verdict) {
      case Verdict::kNone:
        if (is_detached_work(stack.phase)) answer.phase = stack.phase;
        break;
      case Verdict::kCompile:
        answer = {decision.compile, stack.phase, decision.origin};
        break;
      case Verdict::kUnattributed:
        answer.phase = Phase::kUnattributed;
        break;
      case Verdict::kPending:
        undecided.push_back(answers.size());
        break;
    }
    OpenCall& open = calls[tracker.row(sample.thread)];
    if (decision.call != open.call) open = {.call = decision.call};
    if (decision.call != 0 && answer.compile != kNoCompile) {
      for (std::size_t index : open.unknown) answers[index] = answer;
      if (!open.unknown.empty()) seen_first.emplace_back(answer.compile, open.first_ns);
      open.unknown.clear();
    } else if (decision.call != 0 && answer.phase == Phase::kUnattributed) {
      if (open.unknown.empty()) open.first_ns = sample.time_ns;
      open.unknown.push_back(answers.size());
    }
    answers.push_back(answer);
  });
  compiles = tracker.finish();
  for (auto [compile, time_ns] : seen_first) {
    compiles[compile].first_ns = std::min(compiles[compile].first_ns, time_ns);
    compiles[compile].noticed_ns = std::min(compiles[compile].noticed_ns, time_ns);
  }
  agreement = tracker.agreement();
}

// torch's account may say when a compile began that was open when the recording began: its times here
// are those while it was recorded.
void Attribution::State::cut_at_start() {
  const std::uint64_t start_ns = recording.meta().start_ns;
  for (Compile& compile : compiles) {
    const bool across = compile.first_ns != 0 && compile.first_ns < start_ns &&
                        compile.last_ns > start_ns && !compile.before_attach;
    if (!across) continue;
    compile.started_ns = compile.first_ns;
    compile.first_ns = start_ns;
    compile.began_before = true;
  }
}

Phase Attribution::State::phase_of(const Sample& sample, CompileIndex index) const {
  const TorchReading& reading = torch[sample.context];
  const Compile& compile = compiles[index];
  if (reading.phases_cut && compile.timing != kNoIndex) {
    ExactMoment moment = exact.at(spans.row_of(sample.thread), sample.time_ns);
    if (moment.compile == compile.timing) return moment.phase;
  }
  return phase_inside(compile, stacks[sample.stack], reading);
}

void Attribution::State::count() {
  for (CompileIndex i = 0; i < compiles.size(); ++i) {
    auto [known, added] = last_attempts.try_emplace(compiles[i].episode, i);
    if (compiles[i].attempt > compiles[known->second].attempt) known->second = i;
  }

  std::size_t index = 0;
  recording.for_each_sample([&](const Sample& sample) {
    if (index >= answers.size()) return;
    const std::uint64_t cpu_ns = times.of(index);
    Answer& answer = answers[index++];
    if (answer.compile != kNoCompile) {
      compiles[answer.compile].cpu_ns += cpu_ns;
      if (answer.origin != Origin::kExact) answer.phase = phase_of(sample, answer.compile);
      ++attributed;
    } else if (answer.phase == Phase::kUnattributed) {
      ++unattributed;
    } else {
      ++(answer.phase == Phase::kRuntime ? runtime : detached);
    }
  });
}

void Attribution::State::join_breaks() {
  std::map<std::uint32_t, CompileIndex> of_timing;
  std::map<std::pair<std::size_t, TraceId>, std::vector<CompileIndex>> of_id;
  for (CompileIndex i = 0; i < compiles.size(); ++i) {
    if (compiles[i].thread == kNoThread) continue;
    of_id[{spans.row_of(compiles[i].thread), compiles[i].id}].push_back(i);
    if (compiles[i].timing != kNoIndex) of_timing[compiles[i].timing] = i;
  }
  for (const GraphBreak& one : recording.tables().graph_breaks) {
    const std::size_t row = spans.row_of(one.thread);
    const TraceId id = open_compile(recording.tables().contexts[one.context].torch);
    std::uint32_t timing = exact.find(row, one.time_ns, id);
    CompileIndex owner = kNoCompile;
    if (auto known = of_timing.find(timing); known != of_timing.end()) {
      owner = known->second;
    } else if (auto same = of_id.find({row, id}); same != of_id.end()) {
      // No phases were seen (their end is not known then): the last such compile that had begun.
      for (CompileIndex i : same->second) {
        bool over = compiles[i].timing != kNoIndex && compiles[i].last_ns < one.time_ns;
        if (!over && compiles[i].first_ns <= one.time_ns) owner = i;
      }
    }
    if (owner == kNoCompile) continue;
    // One attempt finds the break, the next one compiles up to it: as in torch's history it is the
    // last one's.
    owner = last_attempts.at(compiles[owner].episode);
    breaks[owner].push_back(past_break(recording.tables(), one));
  }
}

Attribution::Attribution(const Recording& recording) : state_(std::make_unique<State>(recording)) {}
Attribution::~Attribution() = default;

const Recording& Attribution::recording() const { return state_->recording; }
const ResolvedFrames& Attribution::frames() const { return state_->frames; }
const std::vector<Compile>& Attribution::compiles() const { return state_->compiles; }
std::uint64_t Attribution::attributed() const { return state_->attributed; }
std::uint64_t Attribution::unattributed() const { return state_->unattributed; }
std::uint64_t Attribution::runtime() const { return state_->runtime; }
std::uint64_t Attribution::detached() const { return state_->detached; }
const Agreement& Attribution::agreement() const { return state_->agreement; }
const Spans& Attribution::spans() const { return state_->spans; }
const ThreadClocks& Attribution::clocks() const { return state_->clocks; }
const ExactCompiles& Attribution::exact() const { return state_->exact; }
const TorchHistory& Attribution::history() const { return state_->history; }
std::int32_t Attribution::main_pid() const { return state_->main_pid; }

const std::vector<GeneratedCopy>& Attribution::generated_copies() const { return state_->copies; }

const ExactCompile* Attribution::timing(CompileIndex index) const {
  std::uint32_t timing = state_->compiles[index].timing;
  return timing == kNoIndex ? nullptr : &state_->exact.all()[timing];
}

const PastCompile* Attribution::past(CompileIndex index) const {
  std::uint32_t past = state_->compiles[index].history;
  return past == kNoIndex ? nullptr : &state_->history.compiles[past];
}

const std::vector<PastBreak>* Attribution::graph_breaks(CompileIndex index) const {
  if (auto seen = state_->breaks.find(index); seen != state_->breaks.end()) return &seen->second;
  // torch notes them once for all attempts: they are the last one's.
  const PastCompile* known = past(index);
  if (known == nullptr || !is_last_attempt(index)) return nullptr;
  // None of its own: certain if breaks were watched while it ran, or if each has its compile.
  bool watched = state_->compiles[index].timing != kNoIndex && !state_->breaks.empty();
  bool certain = watched || !state_->history.breaks_without_compile;
  return known->graph_breaks.empty() && !certain ? nullptr : &known->graph_breaks;
}

bool Attribution::is_last_attempt(CompileIndex index) const {
  return state_->last_attempts.at(state_->compiles[index].episode) == index;
}

CompiledFunction Attribution::function(CompileIndex index) const {
  const Compile& compile = state_->compiles[index];
  const Tables& tables = state_->recording.tables();
  const Code* code = compile.user_code == 0 ? nullptr : &tables.codes[compile.user_code];
  if (code != nullptr && code->unreadable == Unreadable::kNo) {
    return {tables.strings[code->name], tables.strings[code->qualname],
            tables.strings[code->filename], code->first_line};
  }
  if (const PastCompile* known = past(index); known != nullptr && !known->function.empty()) {
    return {known->function, known->function, known->file, known->line};
  }
  if (code == nullptr) return {};
  return {.qualname = unreadable_text(code->unreadable), .unreadable = code->unreadable};
}

bool Attribution::begins_compile(StackId stack) const {
  return state_->stacks[stack].begins_compile;
}

// The names TORCH_COMPILE_CPROFILE writes: the function torch profiles and the trace id as
// CompileContext.current_trace_id() prints it, '/' as '_'.
std::string Attribution::file_stem(CompileIndex index) const {
  const Compile& compile = state_->compiles[index];
  std::string id = compile.id.text();
  std::replace(id.begin(), id.end(), '/', '_');
  const char* function = compile.kind == CompileKind::kBackward           ? "compile_backward"
                         : compile.kind == CompileKind::kCompiledAutograd ? "compiled_autograd"
                         : compile.kind == CompileKind::kExport           ? "export"
                                                                          : "_compile_inner";
  std::string prefix = compile.pid == state_->main_pid ? "" : fmt::format("pid{}-", compile.pid);
  const char* before = compile.before_attach ? "-before" : "";
  return sanitize_file_component(prefix + function + "_" + id + suffix_of(compile) + before);
}

std::string Attribution::label(CompileIndex index) const {
  const std::string process = process_text(state_->compiles[index].pid);
  return process.empty() ? label_in_process(index) : process + " " + label_in_process(index);
}

std::string Attribution::process_text(std::int32_t pid) const {
  if (const auto rank = state_->ranks.find(pid); rank != state_->ranks.end())
    return "rank " + rank->second;
  return pid == state_->main_pid ? "" : fmt::format("pid {}", pid);
}

const std::map<std::int32_t, std::string>& Attribution::ranks() const { return state_->ranks; }

std::string Attribution::label_in_process(CompileIndex index) const {
  const Compile& compile = state_->compiles[index];
  std::string text;
  if (compile.kind != CompileKind::kForward) {
    text += std::string(compile_kind_text(compile.kind)) + " ";
  }
  return text + compile.id.text() + suffix_of(compile);
}

void Attribution::for_each(const std::function<void(const AttributedSample&)>& visit) const {
  std::size_t index = 0;
  state_->recording.for_each_sample([&](const Sample& sample) {
    if (index >= state_->answers.size()) return;
    const std::uint64_t cpu_ns = state_->times.of(index);
    const Answer& answer = state_->answers[index++];
    visit({sample, answer.compile, answer.phase, answer.origin, cpu_ns});
  });
}

}  // namespace dynprof
