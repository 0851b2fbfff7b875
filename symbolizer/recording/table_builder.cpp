#include "symbolizer/recording/table_builder.h"

#include <algorithm>
#include <cstring>

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
    case ChunkKind::kStrings:
      return table(tables_.strings);
    case ChunkKind::kBlobs:
      return table(tables_.blobs);
    case ChunkKind::kCodes:
      return table(tables_.codes);
    case ChunkKind::kFrames:
      return table(tables_.frames);
    case ChunkKind::kStacks:
      return table(tables_.stacks);
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
  auto rows = [&](auto& table, Gaps& gaps) {
    using Row = typename std::remove_reference_t<decltype(table)>::value_type;
    add_rows(
        header, table, gaps, Row{}, [&] { return decode(raw, header.count, table); }, damage);
  };
  switch (header.kind) {
    case ChunkKind::kStrings:
      return add_text(header, raw, tables_.strings, kLostText, string_gaps_, damage);
    case ChunkKind::kBlobs:
      return add_text(header, raw, tables_.blobs, {}, blob_gaps_, damage);
    case ChunkKind::kCodes:
      return rows(tables_.codes, code_gaps_);
    case ChunkKind::kFrames:
      return rows(tables_.frames, frame_gaps_);
    case ChunkKind::kStacks:
      return rows(tables_.stacks, stack_gaps_);
    case ChunkKind::kContexts: {
      // Markers hang off their rows.
      if (!charge(raw.size() * sizeof(Marker) / kSmallestMarkerBytes)) {
        ++damage.too_large[header.kind];
        return;
      }
      return rows(tables_.contexts, context_gaps_);
    }
    case ChunkKind::kProcesses:
      return rows(tables_.processes, process_gaps_);
    case ChunkKind::kThreads:
      return rows(tables_.threads, thread_gaps_);
    case ChunkKind::kNativeNames:
      return rows(native_names_, name_gaps_);
    case ChunkKind::kEdges:
      return rows(tables_.edges, edge_gaps_);
    case ChunkKind::kFacts:
      return rows(tables_.facts, fact_gaps_);
    case ChunkKind::kGpuLaunches:
      if (!admit_gpu_rows(header, sizeof(GpuLaunch), kSmallestLaunchBytes, damage)) return;
      return rows(tables_.gpu_launches, launch_gaps_);
    case ChunkKind::kObjectFiles:
      // Segments hang off their rows; each takes three bytes at least.
      if (!charge(raw.size() * sizeof(FileSegment) / 3)) {
        ++damage.too_large[header.kind];
        return;
      }
      return rows(tables_.object_files, object_gaps_);
    case ChunkKind::kSourcePlaces:
      // Places hang off their rows; each takes four bytes at least.
      if (!charge(raw.size() * sizeof(SourcePlace) / 4)) {
        ++damage.too_large[header.kind];
        return;
      }
      return rows(tables_.source_places, place_gaps_);
    case ChunkKind::kGpuRecords:
      if (!admit_gpu_rows(header, sizeof(GpuRecord), kSmallestRecordBytes, damage)) return;
      return rows(tables_.gpu_records, record_gaps_);
    case ChunkKind::kWaits:
      return rows(tables_.waits, wait_gaps_);
    case ChunkKind::kProcessLife:
      return rows(tables_.lives, life_gaps_);
    default:
      return;
  }
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
    context_gaps_.push_back(Range{lost_.context, lost_.context + 1});
  }
  return lost_.context;
}

ThreadId TableBuilder::lost_thread() {
  if (!have_lost_thread_) {
    have_lost_thread_ = true;
    lost_.thread = static_cast<ThreadId>(tables_.threads.size());
    tables_.threads.push_back(Thread{.comm = lost_string()});
    thread_gaps_.push_back(Range{lost_.thread, lost_.thread + 1});
  }
  return lost_.thread;
}

bool TableBuilder::repair_string(StringId& id) {
  if (id < tables_.strings.size()) return false;
  id = lost_string();
  return true;
}

void TableBuilder::finish_codes(Damage& damage) {
  for (const Range& gap : code_gaps_) {
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
      return (text == lost_.string && text != 0) || contains(string_gaps_, text);
    };
    if (is_lost(code.name) || is_lost(code.qualname)) code.unreadable = Unreadable::kLost;
    tables_.codes[id] = code;
  }
}

void TableBuilder::finish_frames(Damage& damage) {
  for (const NativeName& name : native_names_) {
    if (name.frame >= tables_.frames.size()) continue;
    Frame& frame = tables_.frames[name.frame];
    if (frame.kind != FrameKind::kPython) frame.symbol = name.symbol;
  }
  std::vector<bool> lost(tables_.frames.size(), false);
  bool any = false;
  for (const Range& gap : frame_gaps_) {
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
    lost[id] = repaired || contains(string_gaps_, frame.symbol) ||
               tables_.codes[frame.code].unreadable == Unreadable::kLost;
    any = any || lost[id];
  }
  if (any) lost_frames_ = std::move(lost);
}

void TableBuilder::finish_stacks(Damage& damage) {
  const std::size_t count = tables_.stacks.size();
  std::vector<bool> lost(count, false);
  bool any = false;
  for (const Range& gap : stack_gaps_) {
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
  for (const Range& gap : context_gaps_) {
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
  // Nothing refers to a process by its row, so lost ones just go.
  for (auto gap = process_gaps_.rbegin(); gap != process_gaps_.rend(); ++gap) {
    tables_.processes.erase(tables_.processes.begin() + gap->begin,
                            tables_.processes.begin() + gap->end);
  }
  for (Process& process : tables_.processes) {
    for (StringId* id :
         {&process.comm, &process.exe, &process.command_line, &process.python, &process.torch}) {
      if (repair_string(*id)) ++damage.lost_entries[ChunkKind::kStrings];
    }
  }
  for (const Range& gap : thread_gaps_) {
    for (std::size_t id = gap.begin; id < gap.end; ++id) tables_.threads[id].comm = lost_string();
  }
  for (Thread& thread : tables_.threads) {
    if (repair_string(thread.comm)) ++damage.lost_entries[ChunkKind::kStrings];
  }
}

void TableBuilder::drop_lost_lists(Damage& damage) {
  // Nothing refers to an edge or a fact: lost ones go, and so do those whose thread or text is gone.
  auto drop = [](auto& rows, const Gaps& gaps) {
    for (auto gap = gaps.rbegin(); gap != gaps.rend(); ++gap) {
      rows.erase(rows.begin() + gap->begin, rows.begin() + gap->end);
    }
  };
  drop(tables_.edges, edge_gaps_);
  drop(tables_.facts, fact_gaps_);
  drop(tables_.gpu_launches, launch_gaps_);
  drop(tables_.gpu_records, record_gaps_);
  drop(tables_.waits, wait_gaps_);
  // A wait keeps its length whatever else is lost.
  std::erase_if(tables_.waits, [&](Wait& wait) {
    if (wait.stack >= tables_.stacks.size()) wait.stack = lost_stack();
    if (wait.context >= tables_.contexts.size()) wait.context = lost_context();
    return wait.thread >= tables_.threads.size();
  });
  std::stable_sort(tables_.waits.begin(), tables_.waits.end(),
                   [](const Wait& a, const Wait& b) { return a.begin_ns < b.begin_ns; });
  drop(tables_.lives, life_gaps_);
  drop(tables_.object_files, object_gaps_);
  std::erase_if(tables_.object_files, [&](const ObjectFile& file) {
    return file.object >= tables_.strings.size() || file.build_id >= tables_.strings.size();
  });
  finish_source_places();
  finish_gpu(damage);
  for (ProcessLife& life : tables_.lives)
    for (StringId* id : {&life.comm, &life.exe, &life.command_line})
      if (repair_string(*id)) ++damage.lost_entries[ChunkKind::kStrings];
  std::stable_sort(
      tables_.lives.begin(), tables_.lives.end(),
      [](const ProcessLife& a, const ProcessLife& b) { return a.time_ns < b.time_ns; });
  std::erase_if(tables_.edges, [&](SpanEdge& edge) {
    if (repair_string(edge.name)) ++damage.lost_entries[ChunkKind::kStrings];
    if (edge.code >= tables_.codes.size()) edge.code = lost_code();
    if (edge.context >= tables_.contexts.size()) edge.context = lost_context();
    return edge.thread >= tables_.threads.size();
  });
  // A phase's begin is written when its name is known, which may be after another source's edges.
  std::stable_sort(tables_.edges.begin(), tables_.edges.end(),
                   [](const SpanEdge& a, const SpanEdge& b) { return a.time_ns < b.time_ns; });
  std::erase_if(tables_.facts, [&](const Fact& fact) {
    return fact.kind >= tables_.strings.size() || fact.name >= tables_.strings.size() ||
           fact.body >= tables_.blobs.size();
  });
}

// A row that does not know its frame or its names says nothing: the frame stays as it is without.
void TableBuilder::finish_source_places() {
  for (auto gap = place_gaps_.rbegin(); gap != place_gaps_.rend(); ++gap)
    tables_.source_places.erase(tables_.source_places.begin() + gap->begin,
                                tables_.source_places.begin() + gap->end);
  std::erase_if(tables_.source_places, [&](const SourcePlaces& places) {
    return places.frame >= tables_.frames.size() ||
           tables_.frames[places.frame].kind != FrameKind::kNative ||
           std::any_of(places.chain.begin(), places.chain.end(), [&](const SourcePlace& place) {
             return place.function >= tables_.strings.size() ||
                    place.file >= tables_.strings.size();
           });
  });
}

void TableBuilder::finish(Damage& damage) {
  finish_codes(damage);
  finish_frames(damage);
  finish_stacks(damage);
  finish_others(damage);
  drop_lost_lists(damage);
}

}  // namespace dynprof::recording
