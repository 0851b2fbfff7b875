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
  void native_name(const NativeName& name) override {
    DYNPROF_CHECK(name.frame < frames_.next_id() && name.symbol < strings_.next_id());
    new_names_.push_back(name);
    entry(0, new_names_.size());
  }
  ThreadId thread(const Thread& thread) override {
    DYNPROF_CHECK(thread.comm < strings_.next_id());
    return entry(threads_.intern(thread), threads_.next_id() - threads_out_);
  }
  void process(const Process& process) override {
    for (StringId text :
         {process.comm, process.exe, process.command_line, process.python, process.torch}) {
      DYNPROF_CHECK(text < strings_.next_id());
    }
    if (processes_.size() >= kRememberOthers) processes_.clear();
    auto [known, added] = processes_.try_emplace(process.pid, process);
    if (!added && known->second == process) return;
    known->second = process;
    new_processes_.push_back(process);
    entry(0, new_processes_.size());
  }
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

  void edge(const SpanEdge& edge) override {
    DYNPROF_CHECK(edge.thread < threads_.next_id() && edge.name < strings_.next_id() &&
                  edge.code < codes_.next_id() && edge.context < contexts_.next_id());
    new_edges_.push_back(edge);
    entry(0, new_edges_.size());
  }
  void fact(const Fact& fact) override {
    DYNPROF_CHECK(fact.kind < strings_.next_id() && fact.name < strings_.next_id() &&
                  fact.body < blobs_.next_id());
    new_facts_.push_back(fact);
    entry(0, new_facts_.size());
  }
  void wait(const Wait& wait) override {
    DYNPROF_CHECK(wait.thread < threads_.next_id() && wait.stack < next_stack_ &&
                  wait.context < contexts_.next_id() && wait.length_ns <= wait.span_ns &&
                  wait.runnable_ns <= wait.length_ns);
    new_waits_.push_back(wait);
    entry(0, new_waits_.size());
  }
  void object_file(const ObjectFile& file) override {
    DYNPROF_CHECK(file.object < strings_.next_id() && file.build_id < strings_.next_id() &&
                  file.segments.size() <= kMaxFileSegments);
    new_objects_.push_back(file);
    entry(0, new_objects_.size());
  }
  void source_places(const SourcePlaces& places) override {
    DYNPROF_CHECK(places.frame < frames_.next_id() && !places.chain.empty() &&
                  places.chain.size() <= kMaxInlined + 1);
    for (const SourcePlace& place : places.chain)
      DYNPROF_CHECK(place.function < strings_.next_id() && place.file < strings_.next_id());
    new_places_.push_back(places);
    entry(0, new_places_.size());
  }
  void gpu_launch(const GpuLaunch& launch) override {
    DYNPROF_CHECK(launch.thread < threads_.next_id() && launch.stack < next_stack_ &&
                  launch.context < contexts_.next_id());
    new_launches_.push_back(launch);
    entry(0, new_launches_.size());
  }
  void gpu_record(const GpuRecord& record) override {
    DYNPROF_CHECK(record.record.kind >= DYNPROF_GPU_KERNEL &&
                  record.record.kind <= DYNPROF_GPU_DEVICE &&
                  record.record.name < strings_.next_id());
    new_records_.push_back(record);
    entry(0, new_records_.size());
  }

  void process_life(const ProcessLife& life) override {
    DYNPROF_CHECK(life.comm < strings_.next_id() && life.exe < strings_.next_id() &&
                  life.command_line < strings_.next_id());
    new_lives_.push_back(life);
    entry(0, new_lives_.size());
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
  template <class T>
  void write_list(ChunkKind kind, std::vector<T>& waiting, std::uint32_t& out) {
    if (waiting.empty()) return;
    if (!sink_.error()) {
      encoded_.clear();
      if constexpr (std::is_same_v<T, StackNode>) {
        encode(waiting, out, encoded_);
      } else {
        encode(std::span<const T>(waiting), encoded_);
      }
      append(kind, out, waiting.size());
    }
    out += static_cast<std::uint32_t>(waiting.size());
    waiting.clear();
  }

  // In the order in which entries use each other, so that a file cut anywhere is whole up to there.
  void write_tables() {
    write_table(ChunkKind::kStrings, strings_, strings_out_);
    write_table(ChunkKind::kBlobs, blobs_, blobs_out_);
    write_table(ChunkKind::kCodes, codes_, codes_out_);
    write_table(ChunkKind::kFrames, frames_, frames_out_);
    write_list(ChunkKind::kStacks, new_stacks_, stacks_out_);
    write_table(ChunkKind::kContexts, contexts_, contexts_out_);
    write_list(ChunkKind::kProcesses, new_processes_, processes_out_);
    write_table(ChunkKind::kThreads, threads_, threads_out_);
    write_list(ChunkKind::kNativeNames, new_names_, names_out_);
    write_list(ChunkKind::kEdges, new_edges_, edges_out_);
    write_list(ChunkKind::kFacts, new_facts_, facts_out_);
    write_list(ChunkKind::kGpuLaunches, new_launches_, launches_out_);
    write_list(ChunkKind::kGpuRecords, new_records_, records_out_);
    write_list(ChunkKind::kWaits, new_waits_, waits_out_);
    write_list(ChunkKind::kProcessLife, new_lives_, lives_out_);
    write_list(ChunkKind::kObjectFiles, new_objects_, objects_out_);
    write_list(ChunkKind::kSourcePlaces, new_places_, places_out_);
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
  std::unordered_map<std::int32_t, Process> processes_;  // by pid, the last state written

  // The first id of each table that is not written yet, and what waits where it is kept apart.
  StringId strings_out_ = 1;
  BlobId blobs_out_ = 1;
  CodeId codes_out_ = 1;
  FrameId frames_out_ = 1;
  StackId stacks_out_ = 1;
  ContextId contexts_out_ = 1;
  std::uint32_t processes_out_ = 0;
  std::uint32_t names_out_ = 0;
  std::uint32_t edges_out_ = 0;
  std::uint32_t facts_out_ = 0;
  std::uint32_t launches_out_ = 0;
  std::uint32_t records_out_ = 0;
  std::uint32_t waits_out_ = 0;
  std::uint32_t lives_out_ = 0;
  std::uint32_t objects_out_ = 0;
  std::uint32_t places_out_ = 0;
  ThreadId threads_out_ = 0;
  std::vector<StackNode> new_stacks_;
  std::vector<Process> new_processes_;
  std::vector<NativeName> new_names_;
  std::vector<SpanEdge> new_edges_;
  std::vector<Fact> new_facts_;
  std::vector<GpuLaunch> new_launches_;
  std::vector<GpuRecord> new_records_;
  std::vector<Wait> new_waits_;
  std::vector<ProcessLife> new_lives_;
  std::vector<ObjectFile> new_objects_;
  std::vector<SourcePlaces> new_places_;
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
