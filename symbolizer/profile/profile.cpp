#include "symbolizer/profile/profile.h"

#include <algorithm>
#include <functional>
#include <tuple>
#include <utility>

namespace dynprof {

Folder::Folder(const CallTree& tree)
    : tree_(tree),
      leaf_(tree.nodes().size(), 0),
      below_(tree.nodes().size(), 0),
      is_touched_(tree.nodes().size(), false),
      by_label_(tree.label_count()),
      by_edge_(tree.edges().size()) {}

// Twice over the same nodes, so that the two agree entry by entry: once by how many, once by time.
Profile Folder::fold(std::span<const StackCount> counts) {
  Profile profile = fold_by(counts, &StackCount::samples);
  const Profile times = fold_by(counts, &StackCount::ns);
  profile.ns = times.samples;
  for (std::size_t i = 0; i < profile.entries.size(); ++i) {
    ProfileEntry& entry = profile.entries[i];
    const ProfileEntry& time = times.entries[i];
    entry.leaf_ns = time.leaf;
    entry.on_stack_ns = time.on_stack;
    for (std::size_t c = 0; c < entry.callers.size(); ++c) {
      entry.callers[c].leaf_ns = time.callers[c].leaf;
      entry.callers[c].on_stack_ns = time.callers[c].on_stack;
    }
  }
  return profile;
}

Profile Folder::fold_by(std::span<const StackCount> counts, std::uint64_t StackCount::*weight) {
  std::span<const CallTree::Node> nodes = tree_.nodes();
  Profile profile;
  std::uint64_t without_frames = 0;
  bool any_without_frames = false;
  std::vector<NodeId> touched;
  for (const StackCount& count : counts) {
    profile.samples += count.*weight;
    NodeId node = tree_.of(count.stack);
    if (node == 0) {
      without_frames += count.*weight;
      any_without_frames = true;
      continue;
    }
    leaf_[node] += count.*weight;
    for (; node != 0 && !is_touched_[node]; node = nodes[node].parent) {
      is_touched_[node] = true;
      touched.push_back(node);
    }
  }
  add_up(touched);

  static_assert(Functions::kNoStack == 0, "sorts before every other function");
  if (any_without_frames) {
    profile.entries.push_back({Functions::kNoStack, without_frames, without_frames, 0, 0, {}});
  }
  std::sort(labels_.begin(), labels_.end());
  for (Label label : labels_) {
    Sum sum = std::exchange(by_label_[label], Sum{});
    profile.entries.push_back({label, sum.leaf, sum.on_stack, 0, 0, {}});
  }
  std::span<const CallTree::Edge> edges = tree_.edges();
  std::sort(edges_.begin(), edges_.end(), [&](std::uint32_t a, std::uint32_t b) {
    return std::tie(edges[a].label, edges[a].caller) < std::tie(edges[b].label, edges[b].caller);
  });
  auto entry = profile.entries.begin();
  for (std::uint32_t edge : edges_) {
    Sum sum = std::exchange(by_edge_[edge], Sum{});
    while (entry->function != edges[edge].label) ++entry;
    entry->callers.push_back({edges[edge].caller, sum.leaf, sum.on_stack, 0, 0});
  }
  labels_.clear();
  edges_.clear();
  return profile;
}

// Children before parents: each node's sum is whole before it goes to its parent's.
void Folder::add_up(std::vector<NodeId>& touched) {
  std::span<const CallTree::Node> nodes = tree_.nodes();
  if (touched.size() > nodes.size() / 8) {
    touched.clear();
    for (NodeId id = static_cast<NodeId>(nodes.size()); id-- > 1;) {
      if (is_touched_[id]) touched.push_back(id);
    }
  } else {
    std::sort(touched.begin(), touched.end(), std::greater<>());
  }
  auto add = [](std::vector<Sum>& sums, std::vector<std::uint32_t>& keys, std::uint32_t key,
                std::uint64_t leaf, std::uint64_t on_stack) {
    Sum& sum = sums[key];
    if (!std::exchange(sum.touched, true)) keys.push_back(key);
    sum.leaf += leaf;
    sum.on_stack += on_stack;
  };
  for (NodeId id : touched) {
    const CallTree::Node& node = nodes[id];
    std::uint64_t leaf = leaf_[id], whole = below_[id] + leaf;
    add(by_label_, labels_, node.label, leaf, node.first_of_label ? whole : 0);
    if (node.parent != 0) {
      below_[node.parent] += whole;
      add(by_edge_, edges_, node.edge, leaf, node.first_of_edge ? whole : 0);
    }
    leaf_[id] = below_[id] = 0;
    is_touched_[id] = false;
  }
}

}  // namespace dynprof
