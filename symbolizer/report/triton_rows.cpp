#include "symbolizer/report/triton_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>

#include "symbolizer/base/text.h"
#include "symbolizer/report/sections.h"
#include "symbolizer/report/user_frames.h"

namespace dynprof {
namespace {

// Work that goes on after so long, called by the same line, is the same stall.
constexpr std::uint64_t kLeastGapNs = 30'000'000;
// A stall without a reading is of the kernel that its line compiles within so long: a kernel's first call makes its
// binder (create_binder), may import the compiler, and then compiles.
constexpr std::uint64_t kSameCallNs = 1'000'000'000;

struct Rule {
  TritonStage stage;
  std::string_view file;  // a part of the path
  std::string_view name;  // of the function, without its class
};
constexpr std::string_view kBackends = "/triton/backends/";
constexpr std::string_view kHeuristics = "/torch/_inductor/runtime/triton_heuristics.py";
// The innermost frame with a rule decides. A kernel that is tuned is compiled first.
constexpr std::array kRules = {
    Rule{TritonStage::kPasses, "/triton/compiler/compiler.py", "compile"},
    Rule{TritonStage::kPasses, "/triton/runtime/jit.py",
         "create_binder"},  // of a kernel's first call
    Rule{TritonStage::kPasses, "/triton/runtime/jit.py", "_do_compile"},
    Rule{TritonStage::kPasses, kHeuristics, "precompile"},
    Rule{TritonStage::kLlvm, kBackends, "make_llir"},
    Rule{TritonStage::kLlvm, kBackends, "make_ptx"},
    Rule{TritonStage::kLlvm, kBackends, "make_amdgcn"},
    Rule{TritonStage::kAssembler, kBackends, "make_cubin"},
    Rule{TritonStage::kAssembler, kBackends, "make_hsaco"},
    Rule{TritonStage::kTuning, "/triton/runtime/autotuner.py", "_bench"},
    Rule{TritonStage::kTuning, kHeuristics, "autotune_to_one_config"},
    Rule{TritonStage::kTuning, kHeuristics, "benchmark_all_configs"},
    Rule{TritonStage::kTuning, kHeuristics, "coordinate_descent_tuning"},
};

bool is_python(const ResolvedFrame& frame) {
  return frame.kind == FrameKind::kPython && frame.unreadable == Unreadable::kNo;
}

TritonStage stage_of(const ResolvedFrame& frame) {
  if (!is_python(frame)) return TritonStage::kNone;
  for (const Rule& rule : kRules) {
    if (frame.name == rule.name && frame.file.find(rule.file) != std::string_view::npos)
      return rule.stage;
  }
  return TritonStage::kNone;
}

// Whether it may be the caller: not of Triton, torch, or code that torch made.
bool may_call(const ResolvedFrame& frame) {
  if (!is_python(frame) || frame.generated || frame.file.empty() || frame.file.front() == '<' ||
      is_inductor_file(frame.file))
    return false;
  for (std::string_view part : {"/triton/", "-packages/torch/", "/torchinductor_"})
    if (frame.file.find(part) != std::string_view::npos) return false;
  return true;
}

// Of a stack: what Triton does in it, and who called Triton.
struct Work {
  TritonStage stage = TritonStage::kNone;
  FrameId caller = 0;
};

std::vector<Work> work_by_stack(const Tables& tables, const ResolvedFrames& frames) {
  std::vector<TritonStage> stages(frames.size(), TritonStage::kNone);
  std::vector<bool> callers(frames.size(), false);
  bool any = false;
  for (FrameId id = 0; id < frames.size(); ++id) {
    stages[id] = stage_of(frames[id]);
    any |= stages[id] != TritonStage::kNone;
    callers[id] = may_call(frames[id]);
  }
  std::vector<Work> works;
  if (!any) return works;
  works.resize(tables.stacks.size());
  for (StackId id = 1; id < tables.stacks.size(); ++id) {
    const StackNode& node = tables.stacks[id];
    Work& work = works[id];
    if (node.caller < id) work = works[node.caller];
    // Once Triton works, its caller stays what it was: below it there may be a function of the program's again.
    if (work.stage == TritonStage::kNone && callers[node.frame]) work.caller = node.frame;
    if (stages[node.frame] != TritonStage::kNone) work.stage = stages[node.frame];
  }
  return works;
}

// A part of the time of a thread that Triton works for.
struct Piece {
  std::uint64_t begin_ns = 0, end_ns = 0;
  Work work;  // stage kNone: something else
  // Off the CPU, mostly preempted: the pieces around it say what the thread was in.
  bool no_stack = false;
};

class Fold {
 public:
  Fold(const Tables& tables, const ResolvedFrames& frames, std::uint64_t period_ns)
      : tables_(tables), frames_(frames), gap_ns_(std::max(3 * period_ns, kLeastGapNs)) {
    for (const TritonSample& sample : tables.triton_samples)
      samples_[sample.thread].push_back(&sample);
  }

  void add(ThreadId thread, std::vector<Piece>& pieces) {
    std::stable_sort(pieces.begin(), pieces.end(),
                     [](const Piece& a, const Piece& b) { return a.begin_ns < b.begin_ns; });
    place(pieces);
    std::erase_if(pieces,
                  [](const Piece& piece) { return piece.work.stage == TritonStage::kNone; });
    std::vector<std::span<const Piece>> runs;
    for (std::size_t begin = 0; begin < pieces.size();) {
      std::size_t end = begin + 1;
      std::uint64_t until_ns = pieces[begin].end_ns;
      while (end < pieces.size() && pieces[end].begin_ns <= until_ns + gap_ns_ &&
             same_line(pieces[end].work.caller, pieces[begin].work.caller)) {
        until_ns = std::max(until_ns, pieces[end].end_ns);
        ++end;
      }
      runs.emplace_back(pieces.data() + begin, end - begin);
      begin = end;
    }
    const TritonSample* next = nullptr;  // the first reading of the run behind this one
    for (std::size_t i = runs.size(); i-- > 0;) {
      const Piece& last = runs[i].back();
      if (i + 1 == runs.size() || runs[i + 1][0].begin_ns > last.end_ns + kSameCallNs ||
          !same_line(runs[i + 1][0].work.caller, last.work.caller))
        next = nullptr;
      next = add_run(thread, runs[i], next);
    }
  }

  std::vector<TritonRow> rows() {
    std::vector<TritonRow> rows;
    for (auto& [key, entry] : rows_) {
      entry.row.compilations = entry.compilations.size() + entry.unnamed;
      rows.push_back(entry.row);
    }
    std::stable_sort(rows.begin(), rows.end(), [](const TritonRow& a, const TritonRow& b) {
      return a.stall_ns > b.stall_ns;
    });
    return rows;
  }

 private:
  // pid, kernel, file and line of the caller.
  using Key = std::tuple<std::int32_t, StringId, std::string_view, std::int32_t>;
  struct Entry {
    TritonRow row;
    std::set<std::uint32_t> compilations;
    std::uint64_t unnamed = 0;  // stretches of compiling without a reading
  };

  bool same_line(FrameId a, FrameId b) const {
    return a == b || (frames_[a].file == frames_[b].file && frames_[a].line == frames_[b].line);
  }

  // Pieces without a stack are of the work around them, where that is called by the same line before and after.
  void place(std::vector<Piece>& pieces) const {
    std::size_t before = 0;  // the last one with a stack
    for (std::size_t after = 1; after < pieces.size(); ++after) {
      if (pieces[after].no_stack) continue;
      const std::span<Piece> parts(&pieces[before], after - before + 1);
      before = after;
      const auto apart = [this](const Piece& one, const Piece& next) {
        return next.begin_ns > one.end_ns + gap_ns_;
      };
      const Work work = parts.front().work;
      if (work.stage == TritonStage::kNone || parts.back().work.stage == TritonStage::kNone ||
          !same_line(work.caller, parts.back().work.caller) ||
          std::adjacent_find(parts.begin(), parts.end(), apart) != parts.end())
        continue;
      for (Piece& piece : parts.subspan(1, parts.size() - 2)) piece.work = work;
    }
  }

  // Time that follows on each other: a reading holds until the next one, the first one from the begin on. `next` is taken
  // where there is none. Returns the first one.
  const TritonSample* add_run(ThreadId thread, std::span<const Piece> run,
                              const TritonSample* next) {
    const std::vector<const TritonSample*>& samples = samples_[thread];
    const auto before = [](const TritonSample* sample, std::uint64_t time_ns) {
      return sample->time_ns < time_ns;
    };
    auto first = std::lower_bound(samples.begin(), samples.end(), run.front().begin_ns, before);
    const auto last = std::lower_bound(first, samples.end(), run.back().end_ns + gap_ns_, before);
    const TritonSample* const begins_with = first != last ? *first : next;
    const TritonSample* now = begins_with;
    std::map<Key, std::uint64_t> lengths;
    bool compiles = false;
    for (const Piece& piece : run) {
      while (first != last && (*first)->time_ns <= piece.end_ns) now = *first++;
      const StringId kernel = now ? now->kernel : 0;
      const ResolvedFrame& caller = frames_[piece.work.caller];
      const Key key{tables_.threads[thread].pid, kernel, caller.file, caller.line};
      Entry& entry = rows_[key];
      entry.row.pid = tables_.threads[thread].pid;
      if (kernel != 0) entry.row.kernel = tables_.strings[kernel];
      entry.row.caller = piece.work.caller;
      const std::uint64_t ns = piece.end_ns - piece.begin_ns;
      entry.row.stall_ns += ns;
      entry.row.ns[static_cast<std::size_t>(piece.work.stage)] += ns;
      if (now && now->compilation != 0) entry.compilations.insert(now->compilation);
      compiles |= piece.work.stage != TritonStage::kTuning;
      const std::uint64_t length = lengths[key] += ns;
      entry.row.longest_ns = std::max(entry.row.longest_ns, length);
      if (!now && compiles) entry.unnamed += length == ns;
    }
    return begins_with;
  }

  const Tables& tables_;
  const ResolvedFrames& frames_;
  const std::uint64_t gap_ns_;
  std::unordered_map<ThreadId, std::vector<const TritonSample*>> samples_;
  std::map<Key, Entry> rows_;
};

}  // namespace

const char* triton_stage_text(TritonStage stage) {
  static constexpr std::array<const char*, kTritonStages> kTexts = {"", "passes", "LLVM",
                                                                    "assembler", "tuning"};
  return kTexts[static_cast<std::size_t>(stage)];
}

std::string caller_place(const ResolvedFrames& frames, FrameId caller) {
  if (caller == 0) return "-";
  return fmt::format("{}:{}", base_name(frames[caller].file), frames[caller].line);
}

std::vector<TritonRow> triton_rows(const Analysis& analysis) {
  const Attribution& attribution = analysis.attribution();
  const Tables& tables = analysis.tables();
  const std::vector<Work> works = work_by_stack(tables, attribution.frames());
  if (works.empty()) return {};
  const std::vector<bool> helpers = helper_threads(analysis);
  // A child that is about to become ptxas has its parent's stack until its exec.
  std::unordered_map<std::int32_t, std::uint64_t> exec_ns;
  for (const ProcessLife& life : tables.lives)
    if (life.kind == LifeKind::kExec) exec_ns[life.pid] = std::max(exec_ns[life.pid], life.time_ns);
  std::unordered_map<ThreadId, std::vector<Piece>> pieces;
  const auto add = [&](ThreadId thread, const Piece& piece) {
    // A thread's pieces begin with the first one in Triton.
    if (piece.work.stage == TritonStage::kNone && !pieces.contains(thread)) return;
    const auto exec = exec_ns.find(tables.threads[thread].pid);
    if (!helpers[thread] && (exec == exec_ns.end() || piece.begin_ns >= exec->second))
      pieces[thread].push_back(piece);
  };
  attribution.for_each([&](const AttributedSample& at) {
    const Work work = at.compile == kNoCompile ? works[at.sample.stack] : Work();
    const auto parts = pieces.find(at.sample.thread);
    if (work.stage == TritonStage::kNone && parts != pieces.end() &&
        parts->second.back().work.stage == TritonStage::kNone) {
      parts->second.back().end_ns = at.sample.time_ns;  // one piece is enough
      return;
    }
    const std::uint64_t begin_ns = at.sample.time_ns - std::min(at.sample.time_ns, at.cpu_ns);
    add(at.sample.thread, {begin_ns, begin_ns + at.cpu_ns, work});
  });
  for (std::size_t i = 0; i < tables.waits.size(); ++i) {
    const Wait& wait = tables.waits[i];
    if (wait.kind == WaitKind::kNone) continue;
    const bool outside = analysis.waits().owner(i).compile == kNoCompile;
    add(wait.thread, {wait.begin_ns, wait.begin_ns + wait.length_ns,
                      outside ? works[wait.stack] : Work(), outside && wait.stack == 0});
  }
  Fold fold(tables, attribution.frames(), attribution.recording().meta().period_ns);
  for (auto& [thread, parts] : pieces) fold.add(thread, parts);
  return fold.rows();
}

}  // namespace dynprof
