#include "symbolizer/profile/operators.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>
#include <utility>

namespace dynprof {
namespace {

// Per frame. Several frames may be of one function, and several functions of one operator.
std::vector<OperatorId> operators_of_frames(const ResolvedFrames& frames,
                                            std::vector<OperatorName>& names) {
  std::vector<OperatorId> of_frame(frames.size(), kNoOperator);
  std::unordered_map<std::string_view, OperatorId> of_function;
  std::map<std::pair<OperatorKind, std::string>, OperatorId> known;
  for (FrameId id = 0; id < frames.size(); ++id) {
    const ResolvedFrame& frame = frames[id];
    if (frame.kind != FrameKind::kNative || frame.unreadable != Unreadable::kNo) continue;
    auto [at, is_new] = of_function.try_emplace(frame.function, kNoOperator);
    if (is_new) {
      if (std::optional<OperatorName> name = operator_of_function(frame.function)) {
        const auto next = static_cast<OperatorId>(names.size());
        auto [place, added] = known.try_emplace({name->kind, name->text()}, next);
        if (added) names.push_back(std::move(*name));
        at->second = place->second;
      }
    }
    of_frame[id] = at->second;
  }
  return of_frame;
}

}  // namespace

Operators::Operators(const Tables& tables, const ResolvedFrames& frames) {
  const std::vector<OperatorId> of_frame = operators_of_frames(frames, names_);
  of_stack_.resize(tables.stacks.size());
  tree_.stacks.emplace_back();
  for (std::uint32_t i = 0; i <= names_.size(); ++i)
    tree_.frames.push_back({.kind = FrameKind::kNative, .symbol = i});
  std::unordered_map<std::uint64_t, CallId> known;  // by the call around it and the operator
  for (StackId id = 1; !names_.empty() && id < tables.stacks.size(); ++id) {
    const StackNode& node = tables.stacks[id];
    // A damaged file may have a caller after its callee.
    const CallId around = node.caller < id ? of_stack_[node.caller] : 0;
    const OperatorId op = of_frame[node.frame];
    if (op == kNoOperator || (around != 0 && operator_of(around) == op)) {
      of_stack_[id] = around;
      continue;
    }
    auto [at, added] = known.try_emplace((std::uint64_t{around} << 32) | op,
                                         static_cast<CallId>(tree_.stacks.size()));
    if (added) tree_.stacks.push_back({around, op + 1});
    of_stack_[id] = at->second;
  }
  stacks_.emplace(tree_);
}

void OperatorSums::add(const OperatorSums& more) {
  self_ns += more.self_ns;
  total_ns += more.total_ns;
  self_samples += more.self_samples;
  total_samples += more.total_samples;
  wait_ns += more.wait_ns;
}

ShareInterval share_interval(std::uint64_t part, std::uint64_t whole) {
  if (whole == 0) return {0, 1};
  constexpr double kZ = 1.96;
  const auto n = static_cast<double>(whole);
  const double p = static_cast<double>(std::min(part, whole)) / n;
  const double middle = (p + kZ * kZ / (2 * n)) / (1 + kZ * kZ / n);
  const double half = kZ / (1 + kZ * kZ / n) * std::sqrt(p * (1 - p) / n + kZ * kZ / (4 * n * n));
  return {std::max(0.0, middle - half), std::min(1.0, middle + half)};
}

}  // namespace dynprof
