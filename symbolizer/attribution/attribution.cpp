#include "symbolizer/attribution/attribution.h"

#include <fmt/format.h>

#include <algorithm>

#include "symbolizer/attribution/phases.h"
#include "symbolizer/attribution/tracker.h"
#include "symbolizer/base/text.h"

namespace dynprof {
namespace {

// Work that is a compile's wherever it runs. The other phases without a compile on their stack are
// ordinary run time: replaying a CUDA graph, launching through the autotuner.
bool is_detached_work(Phase phase) {
  return phase == Phase::kKernelCompile || phase == Phase::kAutotune;
}

Phase phase_inside(const Compile& compile, const StackPhase& stack) {
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

}  // namespace

struct Attribution::State {
  // One per sample, in the recording's order.
  struct Answer {
    CompileIndex compile = kNoCompile;
    Phase phase = Phase::kRuntime;
    Origin origin = Origin::kNone;
  };

  explicit State(const Recording& from)
      : recording(from), frames(from.tables()), stacks(classify_stacks(from.tables())) {
    attribute();
    const Tables& tables = recording.tables();
    main_pid = recording.meta().target_pid;
    if (main_pid == 0 && !tables.processes.empty()) main_pid = tables.processes.front().pid;
    if (main_pid == 0 && !tables.threads.empty()) main_pid = tables.threads.front().pid;
  }

  void attribute();
  std::int32_t pid_of(const Compile& compile) const {
    return recording.tables().threads[compile.thread].pid;
  }

  const Recording& recording;
  ResolvedFrames frames;
  std::vector<StackPhase> stacks;
  std::vector<Compile> compiles;
  std::vector<Answer> answers;
  std::int32_t main_pid = 0;
  std::uint64_t attributed = 0, unattributed = 0, runtime = 0, detached = 0;
};

void Attribution::State::attribute() {
  CompileTracker tracker(recording.tables());
  std::vector<std::vector<std::size_t>> pending(tracker.row_count());
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
        answer = {decision.compile, stack.phase, Origin::kFrames};
        break;
      case Verdict::kUnattributed:
        answer.phase = Phase::kUnattributed;
        break;
      case Verdict::kPending:
        undecided.push_back(answers.size());
        break;
    }
    answers.push_back(answer);
  });

  std::vector<CompileIndex> renumbered;
  compiles = tracker.finish(renumbered);
  std::size_t index = 0;
  recording.for_each_sample([&](const Sample& sample) {
    if (index >= answers.size()) return;
    Answer& answer = answers[index++];
    if (answer.compile != kNoCompile) {
      answer.compile = renumbered[answer.compile];
      answer.phase = phase_inside(compiles[answer.compile], stacks[sample.stack]);
      ++attributed;
    } else if (answer.phase == Phase::kUnattributed) {
      ++unattributed;
    } else {
      ++(answer.phase == Phase::kRuntime ? runtime : detached);
    }
  });
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
  std::int32_t pid = state_->pid_of(compile);
  std::string prefix = pid == state_->main_pid ? "" : fmt::format("pid{}-", pid);
  return sanitize_file_component(prefix + function + "_" + id + suffix_of(compile));
}

std::string Attribution::label(CompileIndex index) const {
  const Compile& compile = state_->compiles[index];
  std::int32_t pid = state_->pid_of(compile);
  std::string text = pid == state_->main_pid ? "" : fmt::format("pid {} ", pid);
  if (compile.kind != CompileKind::kForward) {
    text += std::string(compile_kind_text(compile.kind)) + " ";
  }
  return text + compile.id.text() + suffix_of(compile);
}

void Attribution::for_each(const std::function<void(const AttributedSample&)>& visit) const {
  std::size_t index = 0;
  state_->recording.for_each_sample([&](const Sample& sample) {
    if (index >= state_->answers.size()) return;
    const State::Answer& answer = state_->answers[index++];
    visit({sample, answer.compile, answer.phase, answer.origin});
  });
}

}  // namespace dynprof
