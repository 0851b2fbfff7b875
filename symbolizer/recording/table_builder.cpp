#include "symbolizer/recording/table_builder.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "symbolizer/recording/row_codec.h"
#include "symbolizer/recording/row_refs.h"
#include "symbolizer/recording/table_codec.h"

namespace dynprof::recording {
namespace {

// A recording's tables take about ten times its compressed bytes; 64 times is not reached by one
// that we wrote. The floor lets small files have large gaps.
constexpr std::uint64_t kMemoryFloor = 64u << 20;
constexpr std::uint64_t kMemoryPerByte = 64;

// Tag, four ids, depth, instance, code: a byte each at least.
constexpr std::uint64_t kSmallestMarkerBytes = 8;

constexpr std::string_view kLostText = "<lost>";

// Not the empty context, which would say that no compile was open: one that could not be read.
Context unreadable_context() {
  return Context{.markers = {Marker{.kind = MarkerKind::kCompile, .readable = false}}, .torch = {}};
}

}  // namespace

TableBuilder::TableBuilder(std::uint64_t file_bytes) {
  const std::uint64_t bounded = std::min<std::uint64_t>(file_bytes, std::uint64_t{1} << 40);
  memory_left_ = kMemoryFloor + bounded * kMemoryPerByte;
  tables_.strings.emplace_back();
  tables_.blobs.emplace_back();
  tables_.codes.push_back(Code{.unreadable = Unreadable::kBadLayout});
  tables_.frames.emplace_back();
  tables_.stacks.emplace_back();
  tables_.contexts.emplace_back();
}

void TableBuilder::reserve(ChunkKind kind, std::uint64_t rows) {
  auto table = [&](auto& rows_of) {
    using Row = typename std::remove_reference_t<decltype(rows_of)>::value_type;
    // One more for a lost row, without which the last push would double it all.
    rows_of.reserve(static_cast<std::size_t>(std::min(rows + 1, memory_left_ / sizeof(Row))));
  };
  switch (kind) {
#define DYNPROF_RESERVE(kind, number, name, Row, member) \
  case ChunkKind::kind:                                  \
    return table(tables_.member);
    DYNPROF_TABLES(DYNPROF_RESERVE)
#undef DYNPROF_RESERVE
    default:
      return;
  }
}

bool TableBuilder::charge(std::uint64_t bytes) {
  if (bytes > memory_left_) return false;
  memory_left_ -= bytes;
  return true;
}

bool TableBuilder::contains(const Gaps& gaps, std::uint32_t id) {
  auto after =
      std::upper_bound(gaps.begin(), gaps.end(), id,
                       [](std::uint32_t value, const Range& gap) { return value < gap.end; });
  return after != gaps.end() && id >= after->begin;
}

template <class T, class Decode>
void TableBuilder::add_rows(const ChunkHeader& header, std::vector<T>& table, Gaps& gaps,
                            const T& stand_in, const Decode& decode, Damage& damage) {
  const std::uint64_t known = table.size();
  if (header.first < known) {
    ++damage.out_of_order[header.kind];
    return;
  }
  // Each row takes a byte at least, so count is bounded by the payload before memory is asked for.
  if (header.count > header.raw_bytes || header.first + header.count > kMaxId) {
    ++damage.malformed[header.kind];
    return;
  }
  const std::uint64_t gap = header.first - known;
  if (!charge((gap + header.count) * sizeof(T))) {
    ++damage.too_large[header.kind];
    return;
  }
  table.resize(static_cast<std::size_t>(header.first), stand_in);
  if (!decode()) {
    table.resize(static_cast<std::size_t>(known));
    memory_left_ += (gap + header.count) * sizeof(T);
    ++damage.malformed[header.kind];
    return;
  }
  if (gap > 0) {
    gaps.push_back(
        Range{static_cast<std::uint32_t>(known), static_cast<std::uint32_t>(header.first)});
    damage.lost_entries[header.kind] += gap;
  }
}

void TableBuilder::add_text(const ChunkHeader& header, std::span<const std::uint8_t> raw,
                            std::vector<std::string_view>& table, std::string_view stand_in,
                            Gaps& gaps, Damage& damage) {
  if (!charge(raw.size())) {
    ++damage.too_large[header.kind];
    return;
  }
  auto copy = std::make_unique_for_overwrite<char[]>(raw.size());
  if (!raw.empty()) std::memcpy(copy.get(), raw.data(), raw.size());
  const Bytes bytes(reinterpret_cast<const std::uint8_t*>(copy.get()), raw.size());
  text_.push_back(std::move(copy));
  add_rows(
      header, table, gaps, stand_in, [&] { return decode_strings(bytes, header.count, table); },
      damage);
}

void TableBuilder::add(const ChunkHeader& header, std::span<const std::uint8_t> raw,
                       Damage& damage) {
  auto table = [&](auto& rows, Gaps& gaps) {
    using Row = typename std::remove_reference_t<decltype(rows)>::value_type;
    if constexpr (std::is_same_v<Row, std::string_view>) {
      const std::string_view stand_in = header.kind == ChunkKind::kStrings ? kLostText : "";
      add_text(header, raw, rows, stand_in, gaps, damage);
    } else {
      add_rows(
          header, rows, gaps, Row{}, [&] { return decode(raw, header.count, rows); }, damage);
    }
  };
  auto list = [&](auto& rows, Gaps& gaps) {
    using Row = typename std::remove_reference_t<decltype(rows)>::value_type;
    if (charge_items(header, RowFormat<Row>::kItemSize, RowFormat<Row>::kItemBytes, damage) &&
        admit_repetitive(header, sizeof(Row), RowFormat<Row>::kRepetitiveRowBytes, damage))
      table(rows, gaps);
  };
  if (header.kind == ChunkKind::kContexts &&
      !charge_items(header, sizeof(Marker), kSmallestMarkerBytes, damage))
    return;
  switch (header.kind) {
#define DYNPROF_ADD(kind, number, name, Row, member, ...) \
  case ChunkKind::kind:                                   \
    return table(tables_.member, member##_gaps_);
    DYNPROF_TABLES(DYNPROF_ADD)
#undef DYNPROF_ADD
#define DYNPROF_ADD(kind, number, name, Row, member, ...) \
  case ChunkKind::kind:                                   \
    return list(tables_.member, member##_gaps_);
    DYNPROF_LISTS(DYNPROF_ADD)
#undef DYNPROF_ADD
    default:
      return;
  }
}

// For what hangs off rows, `size` in memory each.
bool TableBuilder::charge_items(const ChunkHeader& header, std::size_t size, std::size_t smallest,
                                Damage& damage) {
  if (charge(std::uint64_t{header.raw_bytes} * size / smallest)) return true;
  ++damage.too_large[header.kind];
  return false;
}

// A loop of the same kernels compresses to half a byte for each, far below what other tables do. Most of
// their memory is allowed for beforehand: it cannot be more than a payload's rows take, and so is bounded
// by the expansion of payloads. A gap still has to fit what is left.
bool TableBuilder::admit_repetitive(const ChunkHeader& header, std::size_t size,
                                    std::size_t smallest, Damage& damage) {
  if (smallest == 0) return true;
  if (header.count > header.raw_bytes / smallest) {
    ++damage.malformed[header.kind];
    return false;
  }
  memory_left_ += std::uint64_t{header.count} * size / 16 * 15;
  return true;
}

StringId TableBuilder::lost_string() {
  if (lost_.string == 0) {
    lost_.string = static_cast<StringId>(tables_.strings.size());
    tables_.strings.push_back(kLostText);
  }
  return lost_.string;
}

CodeId TableBuilder::lost_code() {
  if (lost_.code == 0) {
    const StringId text = lost_string();
    lost_.code = static_cast<CodeId>(tables_.codes.size());
    tables_.codes.push_back(
        Code{.filename = text, .name = text, .qualname = text, .unreadable = Unreadable::kLost});
  }
  return lost_.code;
}

FrameId TableBuilder::lost_frame() {
  if (lost_.frame == 0) {
    const CodeId code = lost_code();
    lost_.frame = static_cast<FrameId>(tables_.frames.size());
    tables_.frames.push_back(Frame{.code = code});
  }
  return lost_.frame;
}

StackId TableBuilder::lost_stack() {
  if (lost_.stack == 0) {
    const FrameId frame = lost_frame();
    lost_.stack = static_cast<StackId>(tables_.stacks.size());
    tables_.stacks.push_back(StackNode{0, frame});
    lost_stacks_.resize(tables_.stacks.size(), false);
    lost_stacks_[lost_.stack] = true;
  }
  return lost_.stack;
}

ContextId TableBuilder::lost_context() {
  if (lost_.context == 0) {
    lost_.context = static_cast<ContextId>(tables_.contexts.size());
    tables_.contexts.push_back(unreadable_context());
    contexts_gaps_.push_back(Range{lost_.context, lost_.context + 1});
  }
  return lost_.context;
}

ThreadId TableBuilder::lost_thread() {
  if (!have_lost_thread_) {
    have_lost_thread_ = true;
    lost_.thread = static_cast<ThreadId>(tables_.threads.size());
    tables_.threads.push_back(Thread{.comm = lost_string()});
    threads_gaps_.push_back(Range{lost_.thread, lost_.thread + 1});
  }
  return lost_.thread;
}

bool TableBuilder::repair_string(StringId& id) {
  if (id < tables_.strings.size()) return false;
  id = lost_string();
  return true;
}

void TableBuilder::finish_codes(Damage& damage) {
  for (const Range& gap : codes_gaps_) {
    const CodeId code = lost_code();
    const Code lost = tables_.codes[code];
    for (std::size_t id = gap.begin; id < gap.end; ++id) tables_.codes[id] = lost;
  }
  for (std::size_t id = 1; id < tables_.codes.size(); ++id) {
    Code code = tables_.codes[id];
    bool repaired = repair_string(code.filename);
    repaired |= repair_string(code.name);
    repaired |= repair_string(code.qualname);
    if (code.line_table >= tables_.blobs.size()) {
      code.line_table = 0;
      repaired = true;
    }
    if (repaired) ++damage.lost_entries[ChunkKind::kCodes];
    auto is_lost = [this](StringId text) {
      return (text == lost_.string && text != 0) || contains(strings_gaps_, text);
    };
    if (is_lost(code.name) || is_lost(code.qualname)) code.unreadable = Unreadable::kLost;
    tables_.codes[id] = code;
  }
}

void TableBuilder::finish_frames(Damage& damage) {
  for (const NativeName& name : std::exchange(tables_.native_names, {})) {
    if (name.frame >= tables_.frames.size()) continue;
    Frame& frame = tables_.frames[name.frame];
    if (frame.kind != FrameKind::kPython) frame.symbol = name.symbol;
  }
  native_names_gaps_.clear();
  std::vector<bool> lost(tables_.frames.size(), false);
  bool any = false;
  for (const Range& gap : frames_gaps_) {
    const Frame frame{.code = lost_code()};
    for (std::size_t id = gap.begin; id < gap.end; ++id) tables_.frames[id] = frame;
  }
  for (std::size_t id = 1; id < lost.size(); ++id) {
    Frame frame = tables_.frames[id];
    bool repaired = repair_string(frame.symbol);
    repaired |= repair_string(frame.object);
    if (frame.code >= tables_.codes.size()) {
      frame.code = lost_code();
      repaired = true;
    }
    if (repaired) ++damage.lost_entries[ChunkKind::kFrames];
    tables_.frames[id] = frame;
    lost[id] = repaired || contains(strings_gaps_, frame.symbol) ||
               tables_.codes[frame.code].unreadable == Unreadable::kLost;
    any = any || lost[id];
  }
  if (any) lost_frames_ = std::move(lost);
}

void TableBuilder::finish_stacks(Damage& damage) {
  const std::size_t count = tables_.stacks.size();
  std::vector<bool> lost(count, false);
  bool any = false;
  for (const Range& gap : stacks_gaps_) {
    const StackNode node{0, lost_frame()};
    for (std::size_t id = gap.begin; id < gap.end; ++id) tables_.stacks[id] = node;
    for (std::size_t id = gap.begin; id < gap.end; ++id) lost[id] = true;
    any = true;
  }
  std::vector<std::uint16_t> depth(count, 0);
  static_assert(kMaxStackDepth < 0xffff);
  for (std::size_t id = 1; id < count; ++id) {
    StackNode& node = tables_.stacks[id];  // the decoder made sure that caller < id
    if (node.frame >= tables_.frames.size()) {
      node.frame = lost_frame();
      lost[id] = true;
      ++damage.lost_entries[ChunkKind::kFrames];
    }
    if (depth[node.caller] >= kMaxStackDepth) {
      node.caller = 0;
      ++damage.deep_stacks;
    }
    depth[id] = static_cast<std::uint16_t>(depth[node.caller] + 1);
    if (lost[node.caller] || (node.frame < lost_frames_.size() && lost_frames_[node.frame])) {
      lost[id] = true;
    }
    any = any || lost[id];
  }
  if (any) lost_stacks_ = std::move(lost);
}

void TableBuilder::finish_others(Damage& damage) {
  for (const Range& gap : contexts_gaps_) {
    for (std::size_t id = gap.begin; id < gap.end; ++id) {
      tables_.contexts[id] = unreadable_context();
    }
  }
  for (Context& context : tables_.contexts) {
    for (Marker& marker : context.markers) {
      if (marker.user_code < tables_.codes.size()) continue;
      marker.user_code = 0;
      ++damage.lost_entries[ChunkKind::kCodes];
    }
    for (StringId& phase : context.torch.phases) {
      if (repair_string(phase)) ++damage.lost_entries[ChunkKind::kStrings];
    }
  }
  for (const Range& gap : threads_gaps_) {
    for (std::size_t id = gap.begin; id < gap.end; ++id) tables_.threads[id].comm = lost_string();
  }
  for (Thread& thread : tables_.threads) {
    if (repair_string(thread.comm)) ++damage.lost_entries[ChunkKind::kStrings];
  }
}

bool TableBuilder::repair(Ref what, std::uint32_t& id, Damage& damage) {
  switch (what) {
    case Ref::kString:
      if (repair_string(id)) ++damage.lost_entries[ChunkKind::kStrings];
      return true;
    case Ref::kCode:
      if (id >= tables_.codes.size()) id = lost_code();
      return true;
    case Ref::kStack:
      if (id >= tables_.stacks.size()) id = lost_stack();
      return true;
    case Ref::kContext:
      if (id >= tables_.contexts.size()) id = lost_context();
      return true;
    case Ref::kNeededString:
      return id < tables_.strings.size();
    case Ref::kNeededBlob:
      return id < tables_.blobs.size();
    case Ref::kNeededFrame:
      return id < tables_.frames.size();
    case Ref::kNeededNativeFrame:
      return id < tables_.frames.size() && tables_.frames[id].kind == FrameKind::kNative;
    case Ref::kNeededThread:
      return id < tables_.threads.size();
  }
  return false;
}

// Nothing refers to the rows of a list, so lost ones just go.
template <class Row>
void TableBuilder::finish_list(std::vector<Row>& rows, const Gaps& gaps, Damage& damage) {
  for (auto gap = gaps.rbegin(); gap != gaps.rend(); ++gap)
    rows.erase(rows.begin() + gap->begin, rows.begin() + gap->end);
  bool whole = true;
  RefVisitor visitor([&](Ref what, std::uint32_t& id) {
    if (!repair(what, id, damage)) whole = false;
  });
  RowFormat<Row> format;
  std::erase_if(rows, [&](Row& row) {
    whole = true;
    format.visit(visitor, row, {});
    return !whole;
  });
  // Several sources write, each when it knows enough: so not in order of time.
  if constexpr (requires { RowFormat<Row>::kTime; }) {
    std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
      return a.*RowFormat<Row>::kTime < b.*RowFormat<Row>::kTime;
    });
  }
}

void TableBuilder::finish(Damage& damage) {
  finish_codes(damage);
  finish_frames(damage);
  finish_stacks(damage);
  finish_others(damage);
#define DYNPROF_FINISH(kind, number, name, Row, member, function) \
  finish_list(tables_.member, member##_gaps_, damage);
  DYNPROF_LISTS(DYNPROF_FINISH)
#undef DYNPROF_FINISH
}

}  // namespace dynprof::recording
