// How often LineWatch reads the user's lines.
#pragma once

#include <chrono>

namespace dynprof {

// 20 readings a second at first, fewer the longer compiles go on, since each reading stands for its share of
// them: down to two. Where memory is not read in place, each takes the lock of the target's memory map many times. Fewer as
// well where one takes long: at most a hundredth of a core.
class LinePace {
 public:
  // `all`: they do not become fewer with time.
  explicit LinePace(bool all = false) : all_(all) {}

  // After a reading, and whether it found a compile.
  void read(bool compiles);
  // Until the next one, after one that took so much CPU time.
  std::chrono::nanoseconds next(std::chrono::nanoseconds took) const;
  // Nothing has compiled for long.
  bool idle() const;

 private:
  bool all_;
  int readings_ = 0;
  int idle_ = 0;
};

}  // namespace dynprof
