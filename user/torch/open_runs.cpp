#include "user/torch/open_runs.h"

#include <algorithm>
#include <utility>

namespace dynprof {
namespace {

constexpr std::size_t kMaxOpen = 64;  // one inside another on a thread

}  // namespace

std::vector<OpenRuns::Run> OpenRuns::begin(const Run& run) {
  std::vector<Run> left;
  // Stacks grow down. Where stacks are switched this may be wrong: then a run has no end.
  while (!open_.empty() && open_.back().sp <= run.sp) {
    left.push_back(open_.back());
    open_.pop_back();
  }
  if (open_.size() == kMaxOpen) {
    left.insert(left.end(), open_.rbegin(), open_.rend());
    open_.clear();
  }
  open_.push_back(run);
  return left;
}

template <class Is>
std::vector<OpenRuns::Run> OpenRuns::end_innermost(const Is& is) {
  auto found = std::find_if(open_.rbegin(), open_.rend(), is);
  if (found == open_.rend()) return {};
  std::vector<Run> ended(open_.rbegin(), found + 1);
  open_.erase(found.base() - 1, open_.end());
  return ended;
}

std::vector<OpenRuns::Run> OpenRuns::end(std::uint64_t node, std::uint64_t sp) {
  return end_innermost([&](const Run& run) { return run.node == node && run.sp > sp; });
}

std::vector<OpenRuns::Run> OpenRuns::raised(std::uint64_t sp) {
  return end_innermost([&](const Run& run) { return run.node != 0 && run.sp > sp; });
}

}  // namespace dynprof
