#include "symbolizer/export/html/flame_data.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "symbolizer/attribution/process_command.h"
#include "symbolizer/base/hash.h"
#include "symbolizer/export/display.h"
#include "symbolizer/export/html/page.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxOthers = 60;  // groups outside compiles
constexpr std::size_t kMaxName = 160, kMaxFile = 120;
// Names beyond are cut short: a hostile target must not make the page large.
constexpr std::size_t kMaxLabelBytes = 1'500'000;
constexpr std::size_t kShortName = 16;

using Entries = std::vector<FlameEntry>;

// By node, each once.
void sum_up(Entries& entries) {
  std::sort(entries.begin(), entries.end(),
            [](const FlameEntry& a, const FlameEntry& b) { return a.node < b.node; });
  std::size_t kept = 0;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (kept > 0 && entries[kept - 1].node == entries[i].node) {
      entries[kept - 1].cpu_ns += entries[i].cpu_ns;
      entries[kept - 1].wait_ns += entries[i].wait_ns;
    } else {
      entries[kept++] = entries[i];
    }
  }
  entries.resize(kept);
}

void add_samples(FlameGroup& group, const StackCount& count, std::uint32_t node) {
  group.entries.push_back({node, count.ns, 0});
  group.samples += count.samples;
  group.cpu_ns += count.ns;
}

void add_wait(FlameGroup& group, const StackCount& count, std::uint32_t node) {
  group.entries.push_back({node, 0, count.ns});
  group.wait_ns += count.ns;
}

// A path keeps its end.
std::string_view tail(std::string_view text, std::size_t most) {
  return text.size() > most ? text.substr(text.size() - most) : text;
}

template <class Values, class Get>
void numbers(JsonWriter& json, const char* name, const Values& values, const Get& get) {
  json.key(name);
  json.begin_array();
  for (const auto& value : values) json.number(get(value));
  json.end_array();
}

std::uint64_t microseconds(std::uint64_t ns) { return (ns + 500) / 1000; }

}  // namespace

FlameData::FlameData(bool by_name) : by_name_(by_name) {}

std::vector<Label> FlameData::labels_of(const Analysis& analysis) {
  const ResolvedFrames& frames = analysis.attribution().frames();
  // Frames of one function differ in their line alone.
  std::vector<std::int64_t> of_functions(analysis.functions().size(), -1);
  std::vector<Label> labels(frames.size());
  for (FrameId id = 0; id < frames.size(); ++id) {
    std::int64_t& known = of_functions[analysis.functions().of_frames()[id]];
    if (known < 0) {
      const ResolvedFrame& frame = frames[id];
      FlameLabel label{frame.kind, display_name(frame), std::string(frame.file), frame.first_line};
      std::string key =
          label.name + '\0' +
          std::string(by_name_ ? base_name(label.file) : std::string_view(label.file));
      key += static_cast<char>('0' + static_cast<int>(label.kind));
      if (!by_name_) key += std::to_string(label.line);
      auto [at, added] =
          label_numbers_.try_emplace(std::move(key), static_cast<std::uint32_t>(labels_.size()));
      if (added) labels_.push_back(std::move(label));
      known = at->second;
    }
    labels[id] = static_cast<Label>(known);
  }
  return labels;
}

std::uint32_t FlameData::node(std::uint32_t parent, std::uint32_t label) {
  auto hash_of = [](const Node& node) {
    return hash_u64(static_cast<std::uint64_t>(node.parent) << 32 | node.label);
  };
  const Node wanted{parent, label};
  const std::uint64_t hash = hash_of(wanted);
  std::uint32_t id = node_numbers_.find(hash, [&](std::uint32_t other) {
    return nodes_[other].parent == parent && nodes_[other].label == label;
  });
  if (id != IndexTable::kNone) return id;
  id = static_cast<std::uint32_t>(nodes_.size());
  nodes_.push_back(wanted);
  node_numbers_.add(hash, id, [&](std::uint32_t other) { return hash_of(nodes_[other]); });
  return id;
}

std::vector<std::uint32_t> FlameData::nodes_of(const CallTree& tree) {
  std::vector<std::uint32_t> ours(tree.nodes().size(), 0);
  for (NodeId id = 1; id < ours.size(); ++id)
    ours[id] = node(ours[tree.nodes()[id].parent], tree.nodes()[id].label);
  return ours;
}

void FlameData::add(const Analysis& analysis, const std::vector<CompileIndex>& compiles,
                    std::uint8_t side) {
  const std::vector<Label> labels = labels_of(analysis);
  std::vector<CompileIndex> wanted = compiles;
  for (CompileIndex i = 0; compiles.empty() && i < analysis.attribution().compiles().size(); ++i)
    wanted.push_back(i);
  add_compiles(analysis, wanted, side, labels);
  if (compiles.empty()) add_others(analysis, side, labels);
}

// From the function of torch that compiles on: where the compiled function was called from differs
// from one trace id to the next.
void FlameData::add_compiles(const Analysis& analysis, const std::vector<CompileIndex>& compiles,
                             std::uint8_t side, const std::vector<Label>& labels) {
  const Attribution& attribution = analysis.attribution();
  const CallTree tree(analysis.tables(), labels,
                      [&](StackId stack) { return attribution.begins_compile(stack); });
  const std::vector<std::uint32_t> nodes = nodes_of(tree);
  for (CompileIndex compile : compiles) {
    FlameGroup group{attribution.label(compile), side, compile};
    group.period_ns = attribution.recording().meta().period_ns;
    for (const StackCount& count : analysis.counts().of(compile))
      add_samples(group, count, nodes[tree.of(count.stack)]);
    if (!analysis.cpu_only()) {
      for (const StackCount& count : analysis.counts().waits_of(compile))
        add_wait(group, count, nodes[tree.of(count.stack)]);
    }
    if (group.entries.empty()) continue;
    sum_up(group.entries);
    groups_.push_back(std::move(group));
  }
}

void FlameData::add_others(const Analysis& analysis, std::uint8_t side,
                           const std::vector<Label>& labels) {
  const CallTree tree(analysis.tables(), labels);
  const std::vector<std::uint32_t> nodes = nodes_of(tree);
  const std::vector<std::string> commands = thread_commands(analysis.tables());
  const std::uint64_t period_ns = analysis.attribution().recording().meta().period_ns;
  std::map<std::string, FlameGroup> by_name;
  auto group_of = [&](const StackCount& count) -> FlameGroup& {
    std::string name = commands[count.thread];
    if (count.phase != Phase::kRuntime) name += std::string(", ") + phase_text(count.phase);
    FlameGroup& group = by_name[name];
    group.name = name;
    group.side = side;
    group.period_ns = period_ns;
    return group;
  };
  for (const StackCount& count : analysis.counts().all())
    if (count.compile == kNoCompile)
      add_samples(group_of(count), count, nodes[tree.of(count.stack)]);
  for (const StackCount& count : analysis.counts().waits())
    if (count.compile == kNoCompile) add_wait(group_of(count), count, nodes[tree.of(count.stack)]);
  std::vector<FlameGroup> others;
  for (auto& [name, group] : by_name) others.push_back(std::move(group));
  std::stable_sort(others.begin(), others.end(), [](const FlameGroup& a, const FlameGroup& b) {
    return a.cpu_ns != b.cpu_ns ? a.cpu_ns > b.cpu_ns : a.wait_ns > b.wait_ns;
  });
  FlameGroup rest{"other threads", side};
  rest.period_ns = period_ns;
  for (std::size_t i = kMaxOthers; i < others.size(); ++i) {
    rest.entries.insert(rest.entries.end(), others[i].entries.begin(), others[i].entries.end());
    rest.samples += others[i].samples;
    rest.cpu_ns += others[i].cpu_ns;
    rest.wait_ns += others[i].wait_ns;
  }
  if (others.size() > kMaxOthers) others.resize(kMaxOthers);
  if (!rest.entries.empty()) others.push_back(std::move(rest));
  for (FlameGroup& group : others) {
    sum_up(group.entries);
    groups_.push_back(std::move(group));
  }
}

std::int64_t FlameData::group_of(CompileIndex compile, std::uint8_t side) const {
  for (std::size_t i = 0; i < groups_.size(); ++i)
    if (groups_[i].compile == compile && groups_[i].side == side)
      return static_cast<std::int64_t>(i);
  return -1;
}

// What each node and all it called took, of every node that has any of it; callers before callees.
std::vector<FlameEntry> FlameData::subtrees(const FlameGroup& group) {
  scratch_.resize(nodes_.size());
  touched_.resize(nodes_.size(), false);
  std::vector<std::uint32_t> nodes;
  for (const FlameEntry& entry : group.entries) {
    if (entry.whole_ns() == 0) continue;
    for (std::uint32_t id = entry.node; !touched_[id]; id = nodes_[id].parent) {
      touched_[id] = true;
      nodes.push_back(id);
      if (id == 0) break;
    }
    scratch_[entry.node].cpu_ns += entry.cpu_ns;
    scratch_[entry.node].wait_ns += entry.wait_ns;
  }
  // A caller's number is less than those of what it calls.
  std::sort(nodes.begin(), nodes.end(), std::greater<>());
  Entries sums;
  sums.reserve(nodes.size());
  for (std::uint32_t id : nodes) {
    const FlameEntry sum{id, scratch_[id].cpu_ns, scratch_[id].wait_ns};
    sums.push_back(sum);
    scratch_[id] = {};
    touched_[id] = false;
    if (id == 0) continue;
    scratch_[nodes_[id].parent].cpu_ns += sum.cpu_ns;
    scratch_[nodes_[id].parent].wait_ns += sum.wait_ns;
  }
  std::reverse(sums.begin(), sums.end());
  return sums;
}

void FlameData::prune(std::size_t most) {
  std::vector<double> shares;
  for (const FlameGroup& group : groups_) {
    const auto whole = static_cast<double>(group.cpu_ns + group.wait_ns);
    for (const FlameEntry& sum : subtrees(group))
      shares.push_back(static_cast<double>(sum.whole_ns()) / whole);
  }
  double least = 0;
  if (shares.size() > most) {
    auto cut = shares.begin() + static_cast<std::ptrdiff_t>(most);
    std::nth_element(shares.begin(), cut, shares.end(), std::greater<>());
    least = *cut;  // of the first that is too many: those equal to it go as well
  }
  for (FlameGroup& group : groups_) fold(group, least);
}

void FlameData::fold(FlameGroup& group, double least_share) {
  const auto whole = static_cast<double>(group.cpu_ns + group.wait_ns);
  std::vector<std::uint32_t> kept;
  for (const FlameEntry& sum : subtrees(group)) {
    if (sum.node == 0 || static_cast<double>(sum.whole_ns()) > least_share * whole)
      kept.push_back(sum.node);
    else
      ++group.folded_nodes;
  }
  if (group.folded_nodes == 0) return;
  for (FlameEntry& entry : group.entries) {
    std::uint32_t id = entry.node;
    while (id != 0 && !std::binary_search(kept.begin(), kept.end(), id)) id = nodes_[id].parent;
    if (id != entry.node) group.folded_ns += entry.whole_ns();
    entry.node = id;
  }
  sum_up(group.entries);
}

std::string FlameData::path(std::uint32_t node) const {
  std::string text;
  for (; node != 0; node = nodes_[node].parent)
    text = labels_[nodes_[node].label].name + (text.empty() ? "" : ";") + text;
  return text;
}

void FlameData::write_labels(JsonWriter& json, const std::vector<bool>& used) const {
  std::size_t bytes = 0;
  std::vector<std::string> files;
  std::unordered_map<std::string, std::size_t> file_numbers;
  std::vector<std::size_t> file_of;
  json.key("names");
  json.begin_array();
  for (std::uint32_t id = 0; id < labels_.size(); ++id) {
    if (!used[id]) continue;
    const FlameLabel& label = labels_[id];
    const bool cut = bytes > kMaxLabelBytes;
    const std::string name = page_text(label.name, cut ? kShortName : kMaxName);
    std::string file = page_text(tail(label.file, kMaxFile), cut ? kShortName : kMaxFile);
    auto [at, added] = file_numbers.try_emplace(std::move(file), files.size());
    if (added) files.push_back(at->first);
    file_of.push_back(at->second);
    bytes += name.size() + (added ? files.back().size() : 0);
    json.string(name);
  }
  json.end_array();
  json.key("files");
  json.begin_array();
  for (const std::string& file : files) json.string(file);
  json.end_array();
  numbers(json, "fileOf", file_of, [](std::size_t file) { return file; });
  std::vector<std::uint32_t> kept;
  for (std::uint32_t id = 0; id < labels_.size(); ++id)
    if (used[id]) kept.push_back(id);
  numbers(json, "lineOf", kept, [&](std::uint32_t id) { return labels_[id].line; });
  numbers(json, "kindOf", kept,
          [&](std::uint32_t id) { return static_cast<int>(labels_[id].kind); });
}

void FlameData::write(JsonWriter& json) const {
  std::vector<bool> used(nodes_.size(), false);
  for (const FlameGroup& group : groups_) {
    for (const FlameEntry& entry : group.entries)
      for (std::uint32_t id = entry.node; !used[id]; id = nodes_[id].parent) used[id] = true;
  }
  used[0] = true;
  std::vector<std::uint32_t> number(nodes_.size(), 0), kept;
  std::vector<bool> labels_used(labels_.size(), false);
  for (std::uint32_t id = 0; id < nodes_.size(); ++id) {
    if (!used[id]) continue;
    number[id] = static_cast<std::uint32_t>(kept.size());
    kept.push_back(id);
    if (id != 0) labels_used[nodes_[id].label] = true;
  }
  std::vector<std::uint32_t> label_number(labels_.size(), 0);
  std::uint32_t count = 0;
  for (std::uint32_t id = 0; id < labels_.size(); ++id)
    if (labels_used[id]) label_number[id] = count++;

  json.begin_object();
  write_labels(json, labels_used);
  // Node 0 is the root and has no label; a caller comes before what it calls, given as the distance.
  const std::span<const std::uint32_t> below(kept.data() + 1, kept.size() - 1);
  numbers(json, "parentBefore", below,
          [&](std::uint32_t id) { return number[id] - number[nodes_[id].parent]; });
  numbers(json, "labelOf", below, [&](std::uint32_t id) { return label_number[nodes_[id].label]; });
  json.key("groups");
  json.begin_array();
  for (const FlameGroup& group : groups_) {
    json.line_break();
    json.begin_object();
    json.key("name");
    json.string(page_text(group.name, kMaxName));
    json.field("side", group.side);
    json.field("compile", group.compile != kNoCompile);
    json.field("period", microseconds(group.period_ns));
    json.field("samples", group.samples);
    json.field("cpu", microseconds(group.cpu_ns));
    json.field("wait", microseconds(group.wait_ns));
    json.field("foldedNodes", group.folded_nodes);
    json.field("folded", microseconds(group.folded_ns));
    std::uint32_t before = 0;
    numbers(json, "nodes", group.entries, [&](const FlameEntry& entry) {
      const std::uint32_t step = number[entry.node] - before;
      before = number[entry.node];
      return step;
    });
    numbers(json, "cpuOf", group.entries,
            [](const FlameEntry& entry) { return microseconds(entry.cpu_ns); });
    numbers(json, "waitOf", group.entries,
            [](const FlameEntry& entry) { return microseconds(entry.wait_ns); });
    json.end_object();
  }
  json.end_array();
  json.end_object();
}

}  // namespace dynprof
