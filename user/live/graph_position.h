// Which node of how many Inductor is at while it lowers a graph: the local `n` of GraphLowering.run_node, looked
// up in the list of the graph's nodes. The list is walked once for each graph, through copies of blocks of memory.
// Read in torch 2.6 to 2.14; tested with 2.13.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>

#include "user/live/target_view.h"

namespace dynprof {

struct GraphPosition {
  std::size_t node = 0;  // from 1
  std::size_t count = 0;
  bool operator==(const GraphPosition&) const = default;
};

class GraphPositions {
 public:
  static constexpr std::size_t kMaxNodes =
      4096;  // of a graph; in a longer one the position is not reported

  explicit GraphPositions(TargetView& view) : view_(view) {}

  // `stack` has to be the one that was read last. nullopt: it lowers no graph, or not known.
  std::optional<GraphPosition> of(const RemoteStack& stack);

 private:
  bool learn(std::uint64_t graph, std::size_t count);

  TargetView& view_;
  std::uint64_t graph_ = 0;  // that `index_` is of
  std::size_t count_ = 0;
  std::unordered_map<std::uint64_t, std::size_t> index_;  // from 1, by the address of the node
};

}  // namespace dynprof
