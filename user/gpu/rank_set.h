// Ranks of a distributed job, as --gpu-ranks names them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace dynprof {

// Whether a text, such as a process's RANK, is the number of a rank.
bool is_rank(std::string_view text);

class RankSet {
 public:
  RankSet() = default;  // all
  // "all", "0", "0,3-5"; nullopt: it is none of these.
  static std::optional<RankSet> parse(std::string_view text);

  bool all() const { return ranges_.empty(); }
  // `rank` is what RANK contains in a process; "" where it is not set. With `all` every process is in the set.
  bool contains(std::string_view rank) const;

 private:
  std::vector<std::pair<std::uint32_t, std::uint32_t>> ranges_;  // first and last
};

}  // namespace dynprof
