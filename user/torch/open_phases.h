// The phases that torch has open on one thread, outermost first, from its calls of time.time_ns. A phase
// is known by the frame of the function that times it: begin and end have the same one, whatever
// happened in between.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "symbolizer/recording/model.h"

namespace dynprof {

class OpenPhases {
 public:
  struct Ended {
    std::size_t depth = 0;  // it was the depth-th
    StringId name = 0;
    std::size_t lost = 0;  // phases inside it whose ends were lost
  };

  std::size_t size() const { return open_.size(); }
  bool empty() const { return open_.empty(); }
  void clear() { open_.clear(); }
  // These are open, as torch's list of them says. By which frames is not known.
  void set(const std::vector<StringId>& names);

  // How many were taken off torch's list, which now has `listed`, without an end that came here. The
  // innermost may be not on it yet: a phase is put there just after its begin.
  std::size_t drop_ended(std::size_t listed);
  // Returns false where more are open than any torch has: the oldest is forgotten.
  bool begin(std::uint64_t frame, StringId name);
  // Nothing: its begin was lost. `frame` 0: by its name alone.
  std::optional<Ended> end(std::uint64_t frame, StringId name);

 private:
  struct Phase {
    std::uint64_t frame = 0;  // 0: not known
    StringId name = 0;
  };
  std::vector<Phase> open_;
};

}  // namespace dynprof
