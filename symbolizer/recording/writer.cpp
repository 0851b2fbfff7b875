#include "symbolizer/recording/writer.h"

#include <sys/stat.h>

#include <algorithm>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "symbolizer/base/hash.h"
#include "symbolizer/base/interner.h"
#include "symbolizer/recording/chunk_sink.h"
#include "symbolizer/recording/meta_json.h"
#include "symbolizer/recording/row_codec.h"
#include "symbolizer/recording/row_refs.h"
#include "symbolizer/recording/sample_codec.h"
#include "symbolizer/recording/stack_table.h"
#include "symbolizer/recording/table_codec.h"

namespace dynprof {
namespace {

using namespace recording;

// Something is written out as soon as this much of it waits; entries, or bytes for text.
constexpr std::size_t kFlushBytes = 64 * 1024;
constexpr std::size_t kFlushEntries = 16 * 1024;
constexpr std::size_t kFlushSamples = 8 * 1024;
static_assert(kFlushSamples <= kMaxSamplesPerChunk);
static_assert(kFlushBytes + kMaxBlobBytes + (kFlushEntries + 1) * 4 < kMaxChunkBytes);

// What is remembered to tell new from known, at most. Beyond, the memory starts again from nothing:
// the file then holds some entries twice, under two ids, which costs bytes and no truth. Together
// below 200 MB.
constexpr std::size_t kRememberStringBytes = 32u << 20;
constexpr std::size_t kRememberBlobBytes = 32u << 20;
constexpr std::size_t kRememberCodes = 512u << 10;
constexpr std::size_t kRememberFrames = 768u << 10;
constexpr std::size_t kRememberStacks = 2600u << 10;  // in 4 M slots of 12 bytes
constexpr std::size_t kRememberOthers = 64u << 10;
// Ids kept back for what is handed out until the next look at how many are left.
constexpr std::uint32_t kIdReserve = 16u << 20;

struct CodeHash {
  std::uint64_t operator()(const Code& code) const {
    std::uint64_t names = (std::uint64_t{code.filename} << 32) | code.name;
    std::uint64_t place =
        (std::uint64_t{code.qualname} << 32) | static_cast<std::uint32_t>(code.first_line);
    std::uint64_t rest = (std::uint64_t{code.line_table} << 32) |
                         (std::uint64_t{code.python} << 8) |
                         static_cast<std::uint8_t>(code.unreadable);
    return hash_u64(hash_u64(hash_u64(names) ^ place) ^ rest);
  }
};
struct FrameHash {
  std::uint64_t operator()(const Frame& frame) const {
    std::uint64_t python =
        (std::uint64_t{frame.code} << 32) | static_cast<std::uint32_t>(frame.unit);
    std::uint64_t native = (std::uint64_t{frame.symbol} << 32) | frame.object;
    std::uint64_t kind = (static_cast<std::uint64_t>(frame.kind) << 1) | (frame.entry ? 1 : 0);
    return hash_u64(hash_u64(hash_u64(python) ^ native) ^ frame.offset ^ (kind << 61));
  }
};
struct ContextHash {
  std::uint64_t operator()(const Context& context) const {
    std::uint64_t hash = context.markers.size();
    for (const Marker& marker : context.markers) {
      hash = hash_u64(hash ^ marker.instance);
      hash = hash_u64(hash ^ (std::uint64_t{static_cast<std::uint32_t>(marker.frame_id)} << 32) ^
                      static_cast<std::uint32_t>(marker.compile_id));
      hash = hash_u64(hash ^ (std::uint64_t{static_cast<std::uint32_t>(marker.attempt)} << 32) ^
                      marker.user_code);
    }
    const TorchState& torch = context.torch;
    hash = hash_u64(hash ^ (std::uint64_t{static_cast<std::uint32_t>(torch.frame_id)} << 32) ^
                    static_cast<std::uint32_t>(torch.compile_id));
    hash = hash_u64(hash ^ (std::uint64_t{static_cast<std::uint32_t>(torch.attempt)} << 32) ^
                    static_cast<std::uint8_t>(torch.status));
    for (StringId phase : torch.phases) hash = hash_u64(hash ^ phase);
    return hash;
  }
};
struct ThreadHash {
  std::uint64_t operator()(const Thread& thread) const {
    return hash_u64(hash_u64((std::uint64_t{static_cast<std::uint32_t>(thread.pid)} << 32) |
                             static_cast<std::uint32_t>(thread.tid)) ^
                    thread.comm);
  }
};

class Writer final : public RecordingWriter {
 public:
  Writer(UniqueFd file, const Meta& meta)
      : sink_(std::move(file)), meta_(meta), sample_encoder_(meta.period_ns) {
    // Id 0 of each table is implied and never written.
    strings_.intern("");
    blobs_.intern("");
    codes_.intern(Code{.unreadable = Unreadable::kBadLayout});
    frames_.intern(Frame{});
    contexts_.intern(Context{});
  }

  Result<void> begin() {
    sink_.write_file_header();
    if (!sink_.error()) {
      encoded_.clear();
      encoded_.bytes(meta_to_json(meta_));
      append(ChunkKind::kMeta, 0, 1);
    }
    return status();
  }

  StringId string(std::string_view text) override {
    if (text.empty()) return 0;
    const StringId next = strings_.next_id();
    const StringId id = strings_.intern(text.substr(0, kMaxStringBytes));
    if (id == next) text_waits(text.size());
    return id;
  }
  BlobId blob(std::string_view bytes) override {
    if (bytes.empty() || bytes.size() > kMaxBlobBytes) return 0;
    const BlobId next = blobs_.next_id();
    const BlobId id = blobs_.intern(bytes);
    if (id == next) text_waits(bytes.size());
    return id;
  }
  CodeId code(const Code& code) override {
    DYNPROF_CHECK(code.filename < strings_.next_id() && code.name < strings_.next_id() &&
                  code.qualname < strings_.next_id() && code.line_table < blobs_.next_id());
    return entry(codes_.intern(code), codes_.next_id() - codes_out_);
  }
  FrameId frame(const Frame& frame) override {
    DYNPROF_CHECK(frame.code < codes_.next_id() && frame.symbol < strings_.next_id() &&
                  frame.object < strings_.next_id());
    // What the kind does not use is not stored, so must not tell frames apart.
    Frame kept;
    kept.kind = frame.kind;
    kept.entry = frame.entry;
    if (frame.kind == FrameKind::kPython) {
      kept.code = frame.code;
      kept.unit = frame.unit;
    } else {
      kept.symbol = frame.symbol;
      kept.object = frame.object;
      kept.offset = frame.offset;
    }
    return entry(frames_.intern(kept), frames_.next_id() - frames_out_);
  }
  StackId stack(const StackNode& node) override {
    StackId* slot = stacks_.find(node);
    if (*slot != 0) return *slot;
    DYNPROF_CHECK(node.caller < next_stack_ && node.frame < frames_.next_id());
    const StackId id = next_stack_++;
    *slot = id;
    stacks_.entered();
    new_stacks_.push_back(node);
    return entry(id, new_stacks_.size());
  }
  ContextId context(const Context& context) override {
    DYNPROF_CHECK(context.markers.size() <= kMaxMarkers);
    for (const Marker& marker : context.markers) DYNPROF_CHECK(marker.user_code < codes_.next_id());
    DYNPROF_CHECK(context.torch.phases.size() <= kMaxOpenPhases);
    for (StringId phase : context.torch.phases) DYNPROF_CHECK(phase < strings_.next_id());
    return entry(contexts_.intern(context), contexts_.next_id() - contexts_out_);
  }
  ThreadId thread(const Thread& thread) override {
    DYNPROF_CHECK(thread.comm < strings_.next_id());
    return entry(threads_.intern(thread), threads_.next_id() - threads_out_);
  }
#define DYNPROF_ADD(kind, number, name, Row, member, function) \
  void function(const Row& row) override { add(row, member##_); }
  DYNPROF_LISTS(DYNPROF_ADD)
#undef DYNPROF_ADD
  void sample(const Sample& sample) override {
    DYNPROF_CHECK(sample.thread < threads_.next_id() && sample.stack < next_stack_ &&
                  sample.context < contexts_.next_id());
    if (sink_.error()) {
      ++samples_dropped_;
      return;
    }
    samples_.push_back(sample);
    if (samples_.size() >= kFlushSamples) write_out();
  }

  Result<void> flush() override {
    DYNPROF_CHECK(!finished_);
    write_out();
    return status();
  }
  Result<void> finish(const Trailer& trailer) override {
    DYNPROF_CHECK(!finished_);
    write_out();
    finished_ = true;
    sink_.retry();
    Trailer last = trailer;
    if (samples_dropped_ > 0) last.counters["samples_not_written"] += samples_dropped_;
    encoded_.clear();
    encoded_.bytes(trailer_to_json(last, meta_));
    if (append(ChunkKind::kTrailer, 0, 1)) {
      encoded_.clear();
      append(ChunkKind::kEnd, samples_written_, 0);
    }
    sink_.seal();
    return status();
  }
  std::uint64_t size() const override { return sink_.size(); }
  std::uint64_t samples_dropped() const override { return samples_dropped_; }

 private:
  Result<void> status() const {
    if (sink_.error()) return *sink_.error();
    return {};
  }
  bool append(ChunkKind kind, std::uint64_t first, std::uint64_t count) {
    return sink_.append(kind, first, count, encoded_.view());
  }

  // Rows of a list that are not written yet, and the number of the first.
  template <class Row>
  struct Waiting {
    std::vector<Row> rows;
    std::uint32_t out = 0;
  };

  bool is_known(Ref what, std::uint32_t id) const {
    switch (what) {
      case Ref::kString:
      case Ref::kNeededString:
        return id < strings_.next_id();
      case Ref::kNeededBlob:
        return id < blobs_.next_id();
      case Ref::kCode:
        return id < codes_.next_id();
      case Ref::kNeededFrame:
      case Ref::kNeededNativeFrame:
        return id < frames_.next_id();
      case Ref::kStack:
        return id < next_stack_;
      case Ref::kContext:
        return id < contexts_.next_id();
      case Ref::kNeededThread:
        return id < threads_.next_id();
    }
    return false;
  }
  // A row that could not be read back is a mistake of the caller's.
  struct Check : RowVisitor {
    const Writer& writer;
    explicit Check(const Writer& of) : writer(of) {}
    void ref(Ref what, std::uint32_t id, std::uint32_t = 0) const {
      DYNPROF_CHECK(writer.is_known(what, id));
    }
    template <class T, class E>
    void enumeration(T value, E first, E last) const {
      DYNPROF_CHECK(value >= static_cast<T>(first) && value <= static_cast<T>(last));
    }
    template <class Items, class Visit>
    void items(const Items& rows, std::size_t least, std::size_t most, const Items&,
               const Visit& visit) const {
      DYNPROF_CHECK(rows.size() >= least && rows.size() <= most);
      for (const auto& item : rows) visit(item, {});
    }
    void require(bool truth) const { DYNPROF_CHECK(truth); }
  };
  template <class Row>
  void add(const Row& row, Waiting<Row>& list) {
    Check check(*this);
    RowFormat<Row>().visit(check, row, {});
    if constexpr (std::is_same_v<Row, Process>) {
      if (is_last_written(row)) return;
    }
    list.rows.push_back(row);
    entry(0, list.rows.size());
  }
  bool is_last_written(const Process& process) {
    if (last_processes_.size() >= kRememberOthers) last_processes_.clear();
    auto [known, added] = last_processes_.try_emplace(process.pid, process);
    if (!added && known->second == process) return true;
    known->second = process;
    return false;
  }

  // Tables may be written between any two calls: an entry uses only ids handed out before it.
  void text_waits(std::size_t bytes) {
    waiting_text_ += bytes;
    if (waiting_text_ >= kFlushBytes) write_tables();
  }
  template <class Id>
  Id entry(Id id, std::size_t waiting) {
    if (waiting >= kFlushEntries) write_tables();
    return id;
  }

  // A table chunk of the interner's entries from id `out` on, which then becomes the next id.
  template <class Interner>
  void write_table(ChunkKind kind, const Interner& interner, std::uint32_t& out) {
    const std::uint32_t next = interner.next_id();
    if (out == next) return;
    if (!sink_.error()) {
      auto waiting = interner.entries().subspan(out - interner.first_id());
      encoded_.clear();
      encode(waiting, encoded_);
      append(kind, out, waiting.size());
    }
    out = next;
  }
  void write_stacks() {
    if (new_stacks_.empty()) return;
    if (!sink_.error()) {
      encoded_.clear();
      encode(new_stacks_, stacks_out_, encoded_);
      append(ChunkKind::kStacks, stacks_out_, new_stacks_.size());
    }
    stacks_out_ += static_cast<StackId>(new_stacks_.size());
    new_stacks_.clear();
  }
  template <class Row>
  void write_list(ChunkKind kind, Waiting<Row>& list) {
    if (list.rows.empty()) return;
    if (!sink_.error()) {
      encoded_.clear();
      encode(std::span<const Row>(list.rows), encoded_);
      append(kind, list.out, list.rows.size());
    }
    list.out += static_cast<std::uint32_t>(list.rows.size());
    list.rows.clear();
  }

  // In the order in which entries use each other, so that a file cut anywhere is whole up to there.
  void write_tables() {
    write_table(ChunkKind::kStrings, strings_, strings_out_);
    write_table(ChunkKind::kBlobs, blobs_, blobs_out_);
    write_table(ChunkKind::kCodes, codes_, codes_out_);
    write_table(ChunkKind::kFrames, frames_, frames_out_);
    write_stacks();
    write_table(ChunkKind::kContexts, contexts_, contexts_out_);
    write_table(ChunkKind::kThreads, threads_, threads_out_);
#define DYNPROF_WRITE(kind, number, name, Row, member, function) \
  write_list(ChunkKind::kind, member##_);
    DYNPROF_LISTS(DYNPROF_WRITE)
#undef DYNPROF_WRITE
    waiting_text_ = 0;
    bound_memory();
  }
  void write_out() {
    write_tables();
    if (samples_.empty()) return;
    bool written = false;
    if (!sink_.error()) {
      encoded_.clear();
      sample_encoder_.encode(samples_, encoded_);
      written = append(ChunkKind::kSamples, samples_written_, samples_.size());
    }
    (written ? samples_written_ : samples_dropped_) += samples_.size();
    samples_.clear();
  }
  // Everything has just been written, so all of it may be forgotten.
  void bound_memory() {
    if (strings_.stored_bytes() > kRememberStringBytes) strings_.forget();
    if (blobs_.stored_bytes() > kRememberBlobBytes) blobs_.forget();
    if (codes_.entries().size() > kRememberCodes) codes_.forget();
    if (frames_.entries().size() > kRememberFrames) frames_.forget();
    if (stacks_.size() > kRememberStacks) stacks_.clear();
    if (contexts_.entries().size() > kRememberOthers) contexts_.forget();
    if (threads_.entries().size() > kRememberOthers) threads_.forget();
    // At 10,000 new stacks a second, 119 hours.
    if (std::max({strings_.next_id(), frames_.next_id(), next_stack_}) > kMaxId - kIdReserve) {
      sink_.close(error("the recording has no ids left", "start another one"));
    }
  }

  ChunkSink sink_;
  Meta meta_;
  SampleEncoder sample_encoder_;
  ByteWriter encoded_;  // scratch

  BytesInterner strings_{0};
  BytesInterner blobs_{0};
  ValueInterner<Code, CodeHash> codes_{0};
  ValueInterner<Frame, FrameHash> frames_{0};
  ValueInterner<Context, ContextHash> contexts_{0};
  ValueInterner<Thread, ThreadHash> threads_{0};
  StackTable stacks_;
  StackId next_stack_ = 1;
  std::unordered_map<std::int32_t, Process> last_processes_;  // by pid, the last state written

  // The first id of each table that is not written yet, and what waits where it is kept apart.
  StringId strings_out_ = 1;
  BlobId blobs_out_ = 1;
  CodeId codes_out_ = 1;
  FrameId frames_out_ = 1;
  StackId stacks_out_ = 1;
  ContextId contexts_out_ = 1;
  ThreadId threads_out_ = 0;
  std::vector<StackNode> new_stacks_;
#define DYNPROF_WAITING(kind, number, name, Row, member, function) Waiting<Row> member##_;
  DYNPROF_LISTS(DYNPROF_WAITING)
#undef DYNPROF_WAITING
  std::vector<Sample> samples_;
  std::size_t waiting_text_ = 0;

  std::uint64_t samples_written_ = 0;
  std::uint64_t samples_dropped_ = 0;
  bool finished_ = false;
};

}  // namespace

Result<std::unique_ptr<RecordingWriter>> RecordingWriter::create(UniqueFd file, const Meta& meta) {
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return errno_error("cannot write the recording");
  if (S_ISREG(info.st_mode) && info.st_size != 0) {
    return error("cannot write the recording: its file is not empty");
  }
  auto writer = std::make_unique<Writer>(std::move(file), meta);
  TRY(writer->begin());
  return std::unique_ptr<RecordingWriter>(std::move(writer));
}

}  // namespace dynprof
