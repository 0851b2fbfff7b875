#include "symbolizer/profile/dynamo_profile.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "symbolizer/profile/traced_functions.h"

namespace dynprof {
namespace {

constexpr std::string_view kRootPhase = "bytecode_tracing";
constexpr std::string_view kRaised = "raised";
// Deeper than Dynamo can recurse; more comes from a damaged recording or a hostile target.
constexpr std::size_t kMaxOpen = 1000;
constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

// The profile of one compile while it grows.
class Sums {
 public:
  Sums(DynamoProfile& profile, const TracedFunctions& functions)
      : profile_(profile), functions_(functions) {}

  void add(FunctionNumber number, std::optional<FunctionNumber> caller, std::uint32_t depth,
           const DynamoCalls& calls) {
    std::uint32_t own = place(number, depth);
    DynamoFunction& function = profile_.functions[own];
    function.depth = std::min(function.depth, depth);
    add_to(function.calls, calls, calls.primitive > 0);
    add_to(profile_.sum, calls, calls.primitive > 0);
    if (!caller) return;
    std::uint32_t from = place(*caller, depth - 1);
    std::vector<DynamoCaller>& callers = profile_.functions[own].callers;
    auto [edge, added] = edges_.try_emplace((std::uint64_t{own} << 32) | from,
                                            static_cast<std::uint32_t>(callers.size()));
    if (added) callers.push_back({from, {}});
    add_to(callers[edge->second].calls, calls, true);
  }
  // `chain`: the functions that were open around a call, and its own.
  void add_stack(const std::vector<FunctionNumber>& chain, std::uint64_t own_ns) {
    auto known = stacks_.find(chain);
    if (known == stacks_.end()) {
      if (stacks_.size() >= kMaxDynamoStacks) {
        ++profile_.lost_stacks;
        return;
      }
      known = stacks_.emplace(chain, profile_.stacks.size()).first;
      DynamoStack stack;
      for (FunctionNumber number : chain) stack.functions.push_back(place_in_stacks(number));
      profile_.stacks.push_back(std::move(stack));
    }
    profile_.stacks[known->second].own_ns += own_ns;
    ++profile_.stacks[known->second].calls;
  }
  DynamoProfile& profile() { return profile_; }

 private:
  std::uint32_t place(FunctionNumber number, std::uint32_t depth) {
    auto [known, added] =
        places_.try_emplace(number, static_cast<std::uint32_t>(profile_.functions.size()));
    if (added) {
      profile_.functions.push_back(functions_[number]);
      profile_.functions.back().depth = depth;
    }
    return known->second;
  }
  std::uint32_t place_in_stacks(FunctionNumber number) {
    const auto next = static_cast<std::uint32_t>(profile_.stack_functions.size());
    auto [known, added] = stack_places_.try_emplace(number, next);
    if (added) profile_.stack_functions.push_back(functions_[number]);
    return known->second;
  }
  static void add_to(DynamoCalls& sum, const DynamoCalls& calls, bool cumulative) {
    sum.calls += calls.calls;
    sum.primitive += calls.primitive;
    sum.own_ns += calls.own_ns;
    if (cumulative) sum.cumulative_ns += calls.cumulative_ns;
  }

  DynamoProfile& profile_;
  const TracedFunctions& functions_;
  std::unordered_map<FunctionNumber, std::uint32_t> places_;
  std::unordered_map<std::uint64_t, std::uint32_t> edges_;
  std::map<std::vector<FunctionNumber>, std::size_t> stacks_;
  std::unordered_map<FunctionNumber, std::uint32_t> stack_places_;
};

// Tracing of a compile's own function, from the phase of that name.
struct Root {
  CompileIndex compile;
  std::uint64_t begin_ns, end_ns;
  bool end_known;
};

struct Call {
  CompileIndex compile = kNoCompile;
  std::optional<FunctionNumber> function;  // none: its begin was lost
  std::uint64_t begin_ns = 0;
  std::uint64_t inlined_ns = 0;  // of the calls in it
  std::uint32_t depth = 0;       // as edges count it, over all compiles open on the thread
  std::uint32_t level = 0;       // the same in its compile
  bool primitive = true;
  const Root* root = nullptr;
};

class ThreadTrace {
 public:
  ThreadTrace(std::size_t row, const Tables& tables, const TracedCompiles& compiles,
              TracedFunctions& functions, std::vector<Sums>& sums, std::uint64_t& lost)
      : row_(row),
        tables_(tables),
        compiles_(compiles),
        functions_(functions),
        sums_(sums),
        lost_(lost) {}

  void add_roots(const ThreadSpans& spans) {
    for (const PhaseSpan& span : spans.phases) {
      if (!span.begin_known || tables_.strings[span.name] != kRootPhase) continue;
      roots_.push_back({compiles_.of(row_, span), span.begin_ns, span.end_ns, span.end_known});
    }
    std::stable_sort(roots_.begin(), roots_.end(),
                     [](const Root& a, const Root& b) { return a.begin_ns < b.begin_ns; });
  }

  void add(const SpanEdge& edge) {
    now_ns_ = std::max(now_ns_, edge.time_ns);
    if (edge.kind == EdgeKind::kInlineBegin) {
      advance(now_ns_);
      begin(edge);
    } else if (edge.kind == EdgeKind::kInlineEnd) {
      // What ended with the phase around it has the same time.
      advance(now_ns_ == 0 ? 0 : now_ns_ - 1);
      end(edge);
    } else if (edge.kind == EdgeKind::kWatchBegin || edge.kind == EdgeKind::kWatchEnd) {
      advance(now_ns_);
      lose_down_to(0);
      cut_off();
    }
  }
  void finish() {
    advance(kNever);
    lose_down_to(0);
  }
  bool watched() const { return watched_; }

 private:
  std::uint32_t depth() const { return open_.empty() ? 0 : open_.back().depth; }

  // Opens and closes the roots that begin and end until then.
  void advance(std::uint64_t time_ns) {
    for (;;) {
      std::size_t innermost = open_.size();
      while (innermost > 0 && open_[innermost - 1].root == nullptr) --innermost;
      std::uint64_t end = innermost > 0 ? open_[innermost - 1].root->end_ns : kNever;
      std::uint64_t next = next_root_ < roots_.size() ? roots_[next_root_].begin_ns : kNever;
      if (end > time_ns && next > time_ns) return;
      if (end == kNever && next == kNever) return;
      if (end <= next) {
        lose_down_to(innermost);
        if (open_.back().root->end_known) {
          close(end, true);
        } else {
          lose_down_to(innermost - 1);
        }
      } else {
        open_root(roots_[next_root_++]);
      }
    }
  }

  void open_root(const Root& root) {
    Call call;
    call.compile = root.compile;
    if (call.compile == kNoCompile || open_.size() >= kMaxOpen) return;
    call.function = functions_.of_compile(call.compile);
    call.begin_ns = root.begin_ns;
    call.depth = depth();
    call.root = &root;
    call.primitive = is_primitive(call);
    open_.push_back(call);
  }

  void begin(const SpanEdge& edge) {
    watched_ = true;
    std::uint32_t at = edge.depth == 0 ? depth() + 1 : edge.depth;
    std::size_t keep = open_.size();
    while (keep > 0 && open_[keep - 1].root == nullptr && open_[keep - 1].depth >= at) --keep;
    lose_down_to(keep);
    Call call;
    call.compile = compiles_.of(row_, now_ns_, edge);
    if (call.compile == kNoCompile || at > kMaxOpen || open_.size() + at > kMaxOpen + depth()) {
      ++lost_;
      return;
    }
    call.begin_ns = now_ns_;
    // Calls around it whose begins were lost: calls of what is not known.
    while (depth() + 1 < at) push(call, depth() + 1);
    call.function = functions_.of_code(edge.code);
    call.primitive = is_primitive(call);
    push(call, at);
  }
  void push(Call call, std::uint32_t at) {
    const Call* around = same_compile(call.compile);
    call.depth = at;
    call.level = around == nullptr ? 1 : around->level + 1;
    open_.push_back(call);
  }

  void end(const SpanEdge& edge) {
    bool raised = tables_.strings[edge.name] == kRaised;
    std::size_t keep = open_.size();
    std::uint32_t at = edge.depth == 0 ? depth() : edge.depth;
    auto inner = [&](const Call& call) { return call.root == nullptr && call.depth > at; };
    while (keep > 0 && inner(open_[keep - 1])) --keep;
    bool found = keep > 0 && open_[keep - 1].root == nullptr && open_[keep - 1].depth == at;
    if (!found) {
      lost_ += raised ? 0 : 1;
      return;
    }
    lose_down_to(keep);
    if (edge.code != 0 && open_.back().function &&
        functions_.of_code(edge.code) != *open_.back().function) {
      ++lost_;
      lose_down_to(keep - 1);
      return;
    }
    close(now_ns_, !raised);
  }

  // The last call, which ended then; it counts if it was traced to its end.
  void close(std::uint64_t end_ns, bool counts) {
    Call call = open_.back();
    open_.pop_back();
    Sums& sums = sums_[call.compile];
    if (!counts) {
      if (!call.function) return;
      ++sums.profile().raised;
      if (!raised_.empty() && raised_.back().second != end_ns) raised_.clear();
      raised_.emplace_back(call.compile, end_ns);
      return;
    }
    Call* around = call.root != nullptr ? nullptr : same_compile(call.compile);
    DynamoCalls calls{1, call.primitive ? 1u : 0u, 0, end_ns - call.begin_ns};
    calls.own_ns = calls.cumulative_ns - std::min(calls.cumulative_ns, call.inlined_ns);
    if (!call.function) return;
    if (around != nullptr) around->inlined_ns += calls.cumulative_ns;
    if (call.root != nullptr) {
      sums.profile().root_ns += calls.cumulative_ns;
    } else {
      ++sums.profile().inlined;
    }
    sums.add(*call.function, around == nullptr ? std::nullopt : around->function, call.level,
             calls);
    add_stack(call, calls.own_ns);
  }
  void add_stack(const Call& call, std::uint64_t own_ns) {
    std::vector<FunctionNumber> chain;
    for (const Call& around : open_) {
      if (around.compile == call.compile && around.function) chain.push_back(*around.function);
    }
    chain.push_back(*call.function);
    sums_[call.compile].add_stack(chain, own_ns);
  }
  void lose_down_to(std::size_t keep) {
    while (open_.size() > keep) {
      const Call& call = open_.back();
      if (call.function && call.root == nullptr) ++sums_[call.compile].profile().unfinished;
      open_.pop_back();
    }
  }

  // The end of watching ends what is open as an exception would, at the same moment.
  void cut_off() {
    for (auto [compile, time_ns] : raised_) {
      if (time_ns != now_ns_) continue;
      --sums_[compile].profile().raised;
      ++sums_[compile].profile().unfinished;
    }
    raised_.clear();
  }

  Call* same_compile(CompileIndex compile) {
    auto found = std::find_if(open_.rbegin(), open_.rend(),
                              [&](const Call& call) { return call.compile == compile; });
    return found == open_.rend() ? nullptr : &*found;
  }
  bool is_primitive(const Call& call) const {
    return std::none_of(open_.begin(), open_.end(), [&](const Call& around) {
      return around.compile == call.compile && around.function == call.function;
    });
  }

  std::size_t row_;
  const Tables& tables_;
  const TracedCompiles& compiles_;
  TracedFunctions& functions_;
  std::vector<Sums>& sums_;  // by CompileIndex
  std::uint64_t& lost_;
  std::vector<Root> roots_;
  std::size_t next_root_ = 0;
  std::vector<Call> open_;                                      // outermost first
  std::vector<std::pair<CompileIndex, std::uint64_t>> raised_;  // at the last moment one was
  std::uint64_t now_ns_ = 0;
  bool watched_ = false;
};

}  // namespace

DynamoProfiles::DynamoProfiles(const Attribution& attribution)
    : profiles_(attribution.compiles().size()), watched_(attribution.compiles().size(), false) {
  const Tables& tables = attribution.recording().tables();
  const Spans& spans = attribution.spans();
  TracedFunctions functions(attribution);
  const TracedCompiles compiles(attribution);
  std::vector<Sums> sums;
  for (DynamoProfile& profile : profiles_) sums.emplace_back(profile, functions);
  std::vector<ThreadTrace> threads;
  for (std::size_t row = 0; row < spans.threads().size(); ++row) {
    threads.emplace_back(row, tables, compiles, functions, sums, lost_);
    threads.back().add_roots(spans.threads()[row]);
  }
  for (const SpanEdge& edge : tables.edges) threads[spans.row_of(edge.thread)].add(edge);
  for (ThreadTrace& thread : threads) thread.finish();
  for (CompileIndex i = 0; i < watched_.size(); ++i) {
    ThreadId thread = attribution.compiles()[i].thread;
    watched_[i] = thread < tables.threads.size() && threads[spans.row_of(thread)].watched();
  }
}

const DynamoProfile* DynamoProfiles::of(CompileIndex compile) const {
  const DynamoProfile& profile = profiles_[compile];
  return profile.inlined > 0 ? &profile : nullptr;
}

}  // namespace dynprof
