// Work on one element of a map after the other, round-robin: a round that is cut short continues where the
// previous one stopped, so that no element is left out permanently.
#pragma once

#include <cstddef>

namespace dynprof {

template <class Key>
class Turns {
 public:
  // Visits each element at most once; `visit(key, value)` returns false to end the round. Elements may be added
  // meanwhile, but not removed. Whether all were visited.
  template <class Map, class Visit>
  bool round(Map& map, const Visit& visit) {
    auto at = map.upper_bound(last_);
    for (std::size_t left = map.size(); left > 0; --left, ++at) {
      if (at == map.end()) at = map.begin();
      last_ = at->first;
      if (!visit(at->first, at->second)) return false;
    }
    return true;
  }

 private:
  Key last_ = {};
};

}  // namespace dynprof
