// The rows of lists (chunk_list.h), field by field, in the order of the file. One description each
// serves all that handle rows: RowEncoder and RowDecoder (row_codec.cpp), the writer's check of what
// it is given (writer.cpp), the repair of rows that refer to what a damaged file no longer has
// (row_repair.h). A visitor has:
//
//   varint(x)  signed_varint(x)  flag(x)
//   flags(x, known)                 a byte, no other bit than those
//   enumeration(x, first, last)     a byte in this range
//   difference(x, before)           to the same field of the row before, all 0 for the first of a chunk
//   signed_difference(x, before)    32 bits
//   ref(Ref, x[, before])           an id of a table, as varint or as difference
//   items(rows, least, most, before, visit)   rows that hang off a row: visit(item, item before)
//   require(truth)                  what must hold between fields
//   kDecodes                        whether it fills in the row
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "symbolizer/recording/model.h"

namespace dynprof::recording {

// What becomes of a row whose id is not defined in a damaged file.
enum class Ref : std::uint8_t {
  kString,  // reads "<lost>"; so with the next three
  kCode,
  kStack,
  kContext,
  kNeededString,  // without it the row says nothing and is left out; so with the rest
  kNeededBlob,
  kNeededFrame,
  kNeededNativeFrame,
  kNeededThread,
};

struct PlainRows {
  // What hangs off rows: its size in memory, and the fewest bytes it takes in a payload.
  static constexpr std::size_t kItemSize = 0;
  static constexpr std::size_t kItemBytes = 1;
  // Rows that repeat compress far better than other lists do; 0, or the fewest bytes a row takes:
  // then most of their memory is not charged to the file (TableBuilder).
  static constexpr std::size_t kRepetitiveRowBytes = 0;
};

// Also has `kTime` where rows are sorted when read: the member to sort by.
template <class Row>
struct RowFormat;

template <>
struct RowFormat<Process> : PlainRows {
  template <class V, class R>
  void visit(V& v, R& row, const Process&) {
    v.signed_varint(row.pid);
    v.signed_varint(row.parent_pid);
    v.ref(Ref::kString, row.comm);
    v.ref(Ref::kString, row.exe);
    v.ref(Ref::kString, row.command_line);
    v.ref(Ref::kString, row.python);
    v.ref(Ref::kString, row.torch);
    v.varint(row.start_ns);
    v.flag(row.no_compile_at_start);
  }
};

template <>
struct RowFormat<NativeName> : PlainRows {
  template <class V, class R>
  void visit(V& v, R& row, const NativeName& before) {
    v.ref(Ref::kNeededFrame, row.frame, before.frame);
    v.ref(Ref::kString, row.symbol, before.symbol);
  }
};

template <>
struct RowFormat<SpanEdge> : PlainRows {
  static constexpr auto kTime = &SpanEdge::time_ns;
  template <class V, class R>
  void visit(V& v, R& row, const SpanEdge& before) {
    v.enumeration(row.kind, EdgeKind::kPhaseBegin, EdgeKind::kWatchEnd);
    v.difference(row.time_ns, before.time_ns);
    v.ref(Ref::kNeededThread, row.thread, before.thread);
    v.ref(Ref::kString, row.name);
    v.varint(row.depth);
    v.ref(Ref::kCode, row.code, before.code);
    v.ref(Ref::kContext, row.context, before.context);
    v.difference(row.cpu_ns, before.cpu_ns);
  }
};

template <>
struct RowFormat<Fact> : PlainRows {
  template <class V, class R>
  void visit(V& v, R& row, const Fact&) {
    v.signed_varint(row.pid);
    v.varint(row.time_ns);
    v.ref(Ref::kNeededString, row.kind);
    v.ref(Ref::kNeededString, row.name);
    v.ref(Ref::kNeededBlob, row.body);
  }
};

template <>
struct RowFormat<GpuLaunch> : PlainRows {
  static constexpr auto kTime = &GpuLaunch::time_ns;
  static constexpr std::size_t kRepetitiveRowBytes = 7;
  template <class V, class R>
  void visit(V& v, R& row, const GpuLaunch& before) {
    v.flags(row.flags,
            kGpuCallNested | kGpuCallBare | kGpuCallStub | kGpuCallCaller | kGpuCallNamed);
    v.difference(row.time_ns, before.time_ns);
    v.ref(Ref::kNeededThread, row.thread, before.thread);
    v.difference(row.correlation, before.correlation);
    v.difference(row.call, before.call);
    v.ref(Ref::kStack, row.stack, before.stack);
    v.ref(Ref::kContext, row.context, before.context);
  }
};

template <>
struct RowFormat<GpuRecord> : PlainRows {
  static constexpr std::size_t kRepetitiveRowBytes = 30;
  // What the kinds of records differ in, as 32-bit words; 64-bit numbers are two, the lower one
  // first. They mostly repeat those of the last record of the kind.
  using Words = std::array<std::uint32_t, sizeof(dynprof_gpu_kernel) / sizeof(std::uint32_t)>;
  static_assert(std::endian::native == std::endian::little, "words are stored as in memory");
  std::array<Words, DYNPROF_GPU_DEVICE + 1> last_words = {};

  template <class V, class R>
  void visit(V& v, R& row, const GpuRecord& row_before) {
    auto& record = row.record;
    const dynprof_gpu_record& before = row_before.record;
    v.enumeration(record.kind, DYNPROF_GPU_KERNEL, DYNPROF_GPU_DEVICE);
    v.signed_difference(row.pid, row_before.pid);
    v.difference(record.correlation, before.correlation);
    v.difference(record.start_ns, before.start_ns);
    v.difference(record.end_ns, record.start_ns);
    v.difference(record.device, before.device);
    v.difference(record.context, before.context);
    v.difference(record.stream, before.stream);
    v.ref(Ref::kString, record.name, before.name);
    v.difference(record.graph_node, before.graph_node);
    v.difference(record.graph, before.graph);
    v.difference(record.thread, before.thread);
    Words words;
    std::memcpy(words.data(), &record.kernel, sizeof words);
    Words& words_before = last_words[record.kind];
    for (std::size_t i = 0; i < words.size(); ++i) v.difference(words[i], words_before[i]);
    words_before = words;
    if constexpr (V::kDecodes) std::memcpy(&record.kernel, words.data(), sizeof words);
  }
};

template <>
struct RowFormat<Wait> : PlainRows {
  static constexpr auto kTime = &Wait::begin_ns;
  template <class V, class R>
  void visit(V& v, R& row, const Wait& before) {
    v.enumeration(row.kind, WaitKind::kNone, static_cast<WaitKind>(kWaitKinds - 1));
    v.flags(row.flags, kWaitAtAttach | kWaitAtEnd | kWaitRootMissing | kWaitUnmerged);
    v.difference(row.begin_ns, before.begin_ns);
    v.varint(row.length_ns);
    std::uint64_t between_ns = row.span_ns - row.length_ns;
    v.varint(between_ns);
    v.varint(row.runnable_ns);
    // The end must be a time, and no part longer than the whole.
    constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
    v.require(between_ns <= kMost - row.length_ns && row.runnable_ns <= row.length_ns);
    if constexpr (V::kDecodes) row.span_ns = row.length_ns + between_ns;
    v.require(row.begin_ns <= kMost - row.span_ns);
    v.difference(row.cpu_ns, before.cpu_ns);
    v.ref(Ref::kNeededThread, row.thread, before.thread);
    v.ref(Ref::kStack, row.stack, before.stack);
    v.ref(Ref::kContext, row.context, before.context);
    v.varint(row.count);
  }
};

template <>
struct RowFormat<ProcessLife> : PlainRows {
  static constexpr auto kTime = &ProcessLife::time_ns;
  template <class V, class R>
  void visit(V& v, R& row, const ProcessLife& before) {
    v.enumeration(row.kind, LifeKind::kFork, LifeKind::kLeft);
    v.difference(row.time_ns, before.time_ns);
    v.signed_difference(row.pid, before.pid);
    v.signed_difference(row.parent_pid, before.parent_pid);
    v.signed_difference(row.parent_tid, before.parent_tid);
    v.ref(Ref::kString, row.comm, before.comm);
    v.ref(Ref::kString, row.exe, before.exe);
    v.ref(Ref::kString, row.command_line, before.command_line);
    v.varint(row.command_bytes);
    v.varint(row.cpu_ns);
    v.signed_varint(row.exit_code);
  }
};

template <>
struct RowFormat<ObjectFile> : PlainRows {
  static constexpr std::size_t kItemSize = sizeof(FileSegment);
  static constexpr std::size_t kItemBytes = 3;
  template <class V, class R>
  void visit(V& v, R& row, const ObjectFile& before) {
    v.ref(Ref::kNeededString, row.object);
    v.ref(Ref::kNeededString, row.build_id);
    v.items(row.segments, 0, kMaxFileSegments, before.segments,
            [&v](auto& segment, const FileSegment&) {
              v.varint(segment.offset);
              v.varint(segment.size);
              v.varint(segment.address);
            });
  }
};

template <>
struct RowFormat<SourcePlaces> : PlainRows {
  static constexpr std::size_t kItemSize = sizeof(SourcePlace);
  static constexpr std::size_t kItemBytes = 4;
  template <class V, class R>
  void visit(V& v, R& row, const SourcePlaces& before) {
    v.ref(Ref::kNeededNativeFrame, row.frame, before.frame);
    v.items(row.chain, 1, kMaxInlined + 1, before.chain,
            [&v](auto& place, const SourcePlace& last) {
              v.ref(Ref::kNeededString, place.function, last.function);
              v.ref(Ref::kNeededString, place.file, last.file);
              v.difference(place.line, last.line);
              v.difference(place.declared, last.declared);
            });
  }
};

template <class V, class Call>
void visit_user_call(V& v, Call& call, const UserCall& before) {
  v.ref(Ref::kString, call.file, before.file);
  v.difference(call.line, before.line);
  v.ref(Ref::kString, call.function, before.function);
}

template <>
struct RowFormat<GraphBreak> : PlainRows {
  static constexpr auto kTime = &GraphBreak::time_ns;
  static constexpr std::size_t kItemSize = sizeof(UserCall);
  static constexpr std::size_t kItemBytes = 3;
  template <class V, class R>
  void visit(V& v, R& row, const GraphBreak& before) {
    v.difference(row.time_ns, before.time_ns);
    v.ref(Ref::kNeededThread, row.thread, before.thread);
    v.ref(Ref::kContext, row.context, before.context);
    v.ref(Ref::kString, row.reason, before.reason);
    v.items(row.calls, 0, kMaxBreakCalls, before.calls,
            [&v](auto& call, const UserCall& last) { visit_user_call(v, call, last); });
  }
};

template <>
struct RowFormat<LineSample> : PlainRows {
  static constexpr auto kTime = &LineSample::time_ns;
  template <class V, class R>
  void visit(V& v, R& row, const LineSample& before) {
    v.difference(row.time_ns, before.time_ns);
    v.varint(row.weight_ns);
    v.ref(Ref::kNeededThread, row.thread, before.thread);
    v.ref(Ref::kContext, row.context, before.context);
    v.enumeration(row.use, LineUse::kTracing, LineUse::kLowering);
    visit_user_call(v, row.line, before.line);
  }
};

template <>
struct RowFormat<LockSample> : PlainRows {
  static constexpr auto kTime = &LockSample::time_ns;
  template <class V, class R>
  void visit(V& v, R& row, const LockSample& before) {
    v.difference(row.time_ns, before.time_ns);
    v.varint(row.weight_ns);
    v.ref(Ref::kNeededThread, row.thread, before.thread);
    v.signed_varint(row.holder_tid);
  }
};

template <>
struct RowFormat<TritonSample> : PlainRows {
  static constexpr auto kTime = &TritonSample::time_ns;
  template <class V, class R>
  void visit(V& v, R& row, const TritonSample& before) {
    v.difference(row.time_ns, before.time_ns);
    v.ref(Ref::kNeededThread, row.thread, before.thread);
    v.varint(row.compilation);
    v.ref(Ref::kString, row.kernel, before.kernel);
  }
};

template <>
struct RowFormat<ModuleSample> : PlainRows {
  static constexpr auto kTime = &ModuleSample::time_ns;
  template <class V, class R>
  void visit(V& v, R& row, const ModuleSample& before) {
    v.difference(row.time_ns, before.time_ns);
    v.varint(row.weight_ns);
    v.ref(Ref::kNeededThread, row.thread, before.thread);
    v.ref(Ref::kContext, row.context, before.context);
    v.enumeration(row.use, LineUse::kTracing, LineUse::kLowering);
    v.ref(Ref::kNeededString, row.module, before.module);
  }
};

template <>
struct RowFormat<MemoryPeak> : PlainRows {
  static constexpr auto kTime = &MemoryPeak::time_ns;
  template <class V, class R>
  void visit(V& v, R& row, const MemoryPeak& before) {
    v.enumeration(row.of, PeakOf::kBeforeExec, PeakOf::kProcess);
    v.difference(row.time_ns, before.time_ns);
    v.signed_difference(row.pid, before.pid);
    v.varint(row.bytes);
  }
};

template <>
struct RowFormat<MemorySample> : PlainRows {
  static constexpr auto kTime = &MemorySample::time_ns;
  template <class V, class R>
  void visit(V& v, R& row, const MemorySample& before) {
    v.difference(row.time_ns, before.time_ns);
    v.signed_difference(row.pid, before.pid);
    v.difference(row.bytes, before.bytes);
  }
};

template <>
struct RowFormat<CompileProgress> : PlainRows {
  static constexpr auto kTime = &CompileProgress::time_ns;
  template <class V, class R>
  void visit(V& v, R& row, const CompileProgress& before) {
    v.difference(row.time_ns, before.time_ns);
    v.difference(row.begun_ns, before.begun_ns);
    v.ref(Ref::kNeededThread, row.thread, before.thread);
    v.ref(Ref::kContext, row.context, before.context);
    v.enumeration(row.use, LineUse::kTracing, LineUse::kLowering);
    visit_user_call(v, row.line, before.line);
    v.varint(row.node);
    v.varint(row.nodes);
  }
};

template <>
struct RowFormat<RegionRuns> : PlainRows {
  static constexpr auto kTime = &RegionRuns::begin_ns;
  template <class V, class R>
  void visit(V& v, R& row, const RegionRuns& before) {
    v.difference(row.begin_ns, before.begin_ns);
    v.difference(row.end_ns, row.begin_ns);
    v.require(row.begin_ns <= row.end_ns);
    v.signed_difference(row.pid, before.pid);
    v.ref(Ref::kString, row.name, before.name);
    v.ref(Ref::kCode, row.code, before.code);
    v.enumeration(row.then, RunsThen::kCounted, RunsThen::kNotTimed);
    v.varint(row.calls);
    v.varint(row.timed);
    v.varint(row.time_ns);
    v.varint(row.nested_ns);
    v.varint(row.lookups);
    v.varint(row.lookup_ns);
  }
};

template <>
struct RowFormat<Annotation> : PlainRows {
  static constexpr auto kTime = &Annotation::begin_ns;
  template <class V, class R>
  void visit(V& v, R& row, const Annotation& before) {
    v.difference(row.begin_ns, before.begin_ns);
    v.difference(row.end_ns, row.begin_ns);
    v.require(row.begin_ns <= row.end_ns);
    v.ref(Ref::kNeededThread, row.thread, before.thread);
    v.enumeration(row.kind, AnnotationKind::kRecordFunction, AnnotationKind::kNvtx);
    v.flag(row.end_seen);
    v.ref(Ref::kString, row.name, before.name);
  }
};

}  // namespace dynprof::recording
