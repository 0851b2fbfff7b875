// What could not be read of the targets' files and memory within our bounds, as the report counts it. It
// happens deep in the readers, on several threads: they report it here, and the session asks for it.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "symbolizer/recording/read_counters.h"

namespace dynprof {

enum class ReadLoss : std::uint8_t {
#define DYNPROF_READ_LOSS(id, name, sentence) id,
  DYNPROF_READ_COUNTERS(DYNPROF_READ_LOSS)
#undef DYNPROF_READ_LOSS
};
inline constexpr std::size_t kReadLossCount = static_cast<std::size_t>(ReadLoss::kMemoryStuck) + 1;

class ReadLosses {
 public:
  // Of all threads of this program.
  static ReadLosses& of_program();

  // `pid` 0: not known. The first of each kind and process is worth a sentence.
  void add(ReadLoss what, pid_t pid);
  std::uint64_t count(ReadLoss what) const;
  // Those that are not 0, by their names in a recording.
  std::map<std::string, std::uint64_t> named() const;
  // "" when there is none. Each once.
  std::string take_note();

 private:
  static constexpr std::size_t kMaxNotes = 64;

  mutable std::mutex mutex_;
  std::array<std::uint64_t, kReadLossCount> counts_{};
  std::set<std::pair<ReadLoss, pid_t>> noted_;
  std::deque<std::string> notes_;
};

}  // namespace dynprof
