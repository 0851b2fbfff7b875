// Stacks summed for the page's flame graph: one tree of functions, and for each group (a compile, or the
// threads of one name outside compiles) the time of its nodes. A million samples become some ten
// thousand numbers; what is too little to be drawn is added to the frame that called it, and counted.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "symbolizer/base/interner.h"
#include "symbolizer/base/json_writer.h"
#include "symbolizer/profile/analysis.h"

namespace dynprof {

struct FlameEntry {
  std::uint32_t node = 0;  // 0: no stack
  std::uint64_t cpu_ns = 0;
  std::uint64_t wait_ns = 0;  // off the CPU, ready to run included
  std::uint64_t whole_ns() const { return cpu_ns + wait_ns; }
};

struct FlameGroup {
  std::string name;
  std::uint8_t side = 0;  // 0 or 1: which recording
  CompileIndex compile = kNoCompile;
  std::uint64_t period_ns = 0;  // that a sample stands for
  std::uint64_t samples = 0;
  std::uint64_t cpu_ns = 0, wait_ns = 0;
  std::vector<FlameEntry> entries{};  // by node, each once, of what the node itself took
  // What prune() took away.
  std::uint64_t folded_nodes = 0, folded_ns = 0;
};

// What an entry of the page costs is some 25 bytes.
inline constexpr std::size_t kMaxFlameEntries = 40'000;

class FlameData {
 public:
  // Functions of one name and file are one if `by_name`, wherever in the file they begin: of two
  // recordings, one may be of an edited file.
  explicit FlameData(bool by_name = false);

  // The groups of a recording: those of `compiles`, or all, then those outside compiles.
  void add(const Analysis& analysis, const std::vector<CompileIndex>& compiles, std::uint8_t side);
  // At most so many nodes over all groups: those with the least share of their group go first.
  void prune(std::size_t most = kMaxFlameEntries);
  void write(JsonWriter& json) const;

  const std::vector<FlameGroup>& groups() const { return groups_; }
  // The group of a compile; -1: it has none.
  std::int64_t group_of(CompileIndex compile, std::uint8_t side) const;
  // For tests: functions from the root to the node, "a;b;c".
  std::string path(std::uint32_t node) const;

 private:
  struct FlameLabel {
    FrameKind kind = FrameKind::kPython;
    std::string name, file;  // not escaped
    std::int32_t line = 0;
  };
  struct Node {
    std::uint32_t parent = 0;
    std::uint32_t label = 0;
  };

  std::vector<Label> labels_of(const Analysis& analysis);
  std::uint32_t node(std::uint32_t parent, std::uint32_t label);
  std::vector<std::uint32_t> nodes_of(const CallTree& tree);
  void add_compiles(const Analysis& analysis, const std::vector<CompileIndex>& compiles,
                    std::uint8_t side, const std::vector<Label>& labels);
  void add_others(const Analysis& analysis, std::uint8_t side, const std::vector<Label>& labels);
  std::vector<FlameEntry> subtrees(const FlameGroup& group);
  void fold(FlameGroup& group, double least_share);
  void write_labels(JsonWriter& json, const std::vector<bool>& used) const;

  bool by_name_;
  std::vector<FlameLabel> labels_;
  std::unordered_map<std::string, std::uint32_t> label_numbers_;
  std::vector<Node> nodes_{Node{}};
  IndexTable node_numbers_;
  std::vector<FlameGroup> groups_;
  // By node, zero between calls.
  std::vector<FlameEntry> scratch_;
  std::vector<bool> touched_;
};

}  // namespace dynprof
