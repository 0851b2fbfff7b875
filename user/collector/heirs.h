// Forked children that have not taken over yet what their parent knew: most of them exec, or end, before
// anybody asks them for it.
#pragma once

#include <sys/types.h>

#include <map>
#include <utility>
#include <vector>

namespace dynprof {

class Heirs {
 public:
  void add(pid_t child, pid_t parent) { parents_[child] = parent; }
  void forget(pid_t child) { parents_.erase(child); }
  // Whom it inherits from, and no longer waits to; 0: nobody.
  pid_t take_parent(pid_t child) {
    auto at = parents_.find(child);
    return at == parents_.end() ? 0 : parents_.extract(at).mapped();
  }
  // Those of a parent that is about to go, at most kMost.
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
