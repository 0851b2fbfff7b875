// Forked children that have not yet copied the state of their parent: most of them exec or exit before
// it is needed.
#pragma once

#include <sys/types.h>

#include <map>
#include <utility>
#include <vector>

namespace dynprof {

class PendingChildren {
 public:
  void add(pid_t child, pid_t parent) { parents_[child] = parent; }
  void forget(pid_t child) { parents_.erase(child); }
  // The parent to copy from, and no longer pending; 0: not pending.
  pid_t take_parent(pid_t child) {
    auto at = parents_.find(child);
    return at == parents_.end() ? 0 : parents_.extract(at).mapped();
  }
  // Those of a parent that is about to be forgotten, at most kMost.
  std::vector<pid_t> of(pid_t parent) const {
    std::vector<pid_t> children;
    for (auto [child, from] : parents_)
      if (from == parent && children.size() < kMost) children.push_back(child);
    return children;
  }

 private:
  static constexpr std::size_t kMost = 64;
  std::map<pid_t, pid_t> parents_;
};

}  // namespace dynprof
