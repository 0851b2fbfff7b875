#include "symbolizer/recording/inlined_frames.h"

#include <fmt/format.h>

#include <utility>

#include "symbolizer/recording/format.h"
#include "symbolizer/recording/row_refs.h"

namespace dynprof::recording {
namespace {

constexpr const char* kTooMuch =
    "functions inlined in native frames would take too much memory and are not shown";

// Inlined functions of one frame: ids of their frames, which are neighbours, outermost first.
struct Inside {
  FrameId first = 0;
  std::uint32_t count = 0;
};

void place(Frame& frame, const SourcePlace& at) {
  frame.source_file = at.file;
  frame.source_line = at.line;
  frame.declared_line = at.declared;
}

bool is_shown(const Tables& tables, const SourcePlaces& row) {
  return row.frame < tables.frames.size() && !row.chain.empty() &&
         tables.frames[row.frame].kind == FrameKind::kNative;
}

// Frames for all chains; by FrameId of before what is inlined there. Empty: nothing, or too much.
std::vector<Inside> add_frames(Tables& tables, std::uint64_t& memory, InlinedShown& shown) {
  const std::size_t known = tables.frames.size();
  std::uint64_t wanted = 0;
  for (const SourcePlaces& row : tables.source_places)
    if (is_shown(tables, row)) wanted += row.chain.size() - 1;
  const bool fits =
      wanted * sizeof(Frame) + known * sizeof(Inside) <= memory && known + wanted < kMaxId;
  if (!fits) shown.problem = kTooMuch;
  std::vector<Inside> inside(fits && wanted > 0 ? known : 0);
  if (!inside.empty()) memory -= wanted * sizeof(Frame) + known * sizeof(Inside);
  tables.frames.reserve(known + (inside.empty() ? 0 : static_cast<std::size_t>(wanted)));
  std::vector<bool> placed(known, false);
  for (const SourcePlaces& row : tables.source_places) {
    if (row.frame >= known || placed[row.frame] || !is_shown(tables, row)) continue;
    placed[row.frame] = true;
    place(tables.frames[row.frame], row.chain.back());
    if (inside.empty() || row.chain.size() == 1) continue;
    inside[row.frame] = {static_cast<FrameId>(tables.frames.size()),
                         static_cast<std::uint32_t>(row.chain.size() - 1)};
    for (std::size_t i = row.chain.size() - 1; i-- > 0;) {
      Frame frame = tables.frames[row.frame];
      frame.inlined = true;
      frame.symbol = row.chain[i].function;
      place(frame, row.chain[i]);
      tables.frames.push_back(frame);
    }
  }
  return inside;
}

std::uint64_t nodes_after(const Tables& tables, const std::vector<Inside>& inside) {
  std::uint64_t nodes = tables.stacks.size();
  for (const StackNode& node : tables.stacks)
    if (node.frame < inside.size()) nodes += inside[node.frame].count;
  return nodes;
}

void add_nodes(Tables& tables, const std::vector<Inside>& inside, std::uint64_t nodes,
               InlinedShown& shown) {
  std::vector<StackNode> stacks{StackNode{}};
  stacks.reserve(static_cast<std::size_t>(nodes));
  shown.stacks.assign(tables.stacks.size(), 0);
  std::vector<std::uint32_t> depth(tables.stacks.size(), 0);
  std::uint64_t too_deep = 0;
  for (StackId id = 1; id < tables.stacks.size(); ++id) {
    const StackNode& node = tables.stacks[id];
    const StackId caller = node.caller < id ? node.caller : 0;
    Inside in = node.frame < inside.size() ? inside[node.frame] : Inside{};
    if (in.count > 0 && depth[caller] + 1 + in.count > kMaxShownDepth) {
      in.count = 0;
      ++too_deep;
    }
    depth[id] = depth[caller] + 1 + in.count;
    stacks.push_back({shown.stacks[caller], node.frame});
    for (FrameId i = 0; i < in.count; ++i)
      stacks.push_back({static_cast<StackId>(stacks.size() - 1), in.first + i});
    shown.stacks[id] = static_cast<StackId>(stacks.size() - 1);
  }
  tables.stacks = std::move(stacks);
  if (too_deep > 0)
    shown.problem = fmt::format(
        "functions inlined in {} native frames are not shown: their stacks would be deeper than {}",
        too_deep, kMaxShownDepth);
}

void follow(Tables& tables, const InlinedShown& shown) {
  auto move = [&shown]<class Id>(Ref what, Id& id) {
    if (what == Ref::kStack) id = shown.now(id);
  };
#define DYNPROF_FOLLOW(kind, number, name, Row, member, function) visit_refs(tables.member, move);
  DYNPROF_LISTS(DYNPROF_FOLLOW)
#undef DYNPROF_FOLLOW
  for (GpuLaunch& launch : tables.gpu_launches) {
    if (!(launch.flags & (kGpuCallStub | kGpuCallCaller))) continue;
    // Its innermost frame stands for a kernel or a library: the function, not what is inlined there.
    while (launch.stack != 0 && tables.frames[tables.stacks[launch.stack].frame].inlined)
      launch.stack = tables.stacks[launch.stack].caller;
  }
}

}  // namespace

InlinedShown show_inlined(Tables& tables, std::uint64_t memory) {
  InlinedShown shown;
  if (tables.source_places.empty()) return shown;
  const std::vector<Inside> inside = add_frames(tables, memory, shown);
  tables.source_places = {};
  if (inside.empty()) return shown;
  const std::uint64_t nodes = nodes_after(tables, inside);
  // The nodes, where each of before is now, and its depth.
  const std::uint64_t bytes = nodes * sizeof(StackNode) + tables.stacks.size() * 8;
  if (bytes > memory || nodes >= kMaxId) {
    shown.problem = kTooMuch;
    return shown;
  }
  add_nodes(tables, inside, nodes, shown);
  follow(tables, shown);
  return shown;
}

}  // namespace dynprof::recording
