#include "symbolizer/recording/reader.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "symbolizer/recording/chunk_file.h"
#include "symbolizer/recording/damage.h"
#include "symbolizer/recording/inlined_frames.h"
#include "symbolizer/recording/meta_json.h"
#include "symbolizer/recording/open_fd.h"
#include "symbolizer/recording/sample_codec.h"
#include "symbolizer/recording/table_builder.h"

namespace dynprof {
namespace recording {
namespace {

// As many samples as these are kept in memory (12 MB), so that they are decoded once. Of a longer recording
// each pass decodes them again: memory does not grow with its length.
constexpr std::uint64_t kKeptSamples = 1 << 19;

class Reader final : public Recording {
 public:
  explicit Reader(ChunkFile file) : file_(std::move(file)), builder_(file_.size()) {}

  void read(bool inlined_shown) {
    find_chunks();
    read_tables();
    builder_.finish(damage_);
    read_ends();
    check_samples();
    sentences_ = damage_.sentences();
    stack_count_ = tables().stacks.size();
    if (!inlined_shown) return;
    shown_ = show_inlined(builder_.edit_tables(), builder_.memory_left());
    if (!shown_.problem.empty()) sentences_.push_back(shown_.problem);
  }

  const Meta& meta() const override { return meta_; }
  const Tables& tables() const override { return builder_.tables(); }
  const Trailer& trailer() const override { return trailer_; }
  bool complete() const override { return complete_; }
  const std::vector<std::string>& damage() const override { return sentences_; }
  std::uint64_t sample_count() const override { return sample_count_; }
  void for_each_sample(const std::function<void(const Sample&)>& visit) const override;

 private:
  void find_chunks();
  void read_tables();
  void read_ends();
  void check_samples();
  void make_lost_rows(const Sample& sample);
  void mend_ids(Sample& sample, std::size_t stacks) const;
  static bool raise_time(Sample& sample, std::vector<std::uint64_t>& last_times);
  std::string_view load_text(const std::optional<Chunk>& chunk);

  // Reading a payload uses the file's buffers, which are no part of what a recording is.
  mutable ChunkFile file_;
  mutable SampleDecoder decoder_;
  std::vector<Sample> samples_;
  std::vector<Sample> kept_;  // all of them, or none
  TableBuilder builder_;
  Damage damage_;

  std::vector<Chunk> table_chunks_;
  std::vector<Chunk> sample_chunks_;
  std::optional<Chunk> meta_chunk_;
  std::optional<Chunk> trailer_chunk_;
  bool end_seen_ = false;
  std::uint64_t samples_expected_ = 0;  // by their numbers

  Meta meta_;
  Trailer trailer_;
  bool complete_ = false;
  std::uint64_t sample_count_ = 0;
  LostIds lost_;
  InlinedShown shown_;
  std::size_t stack_count_ = 0;  // as samples in the file count them
  std::vector<std::string> sentences_;
};

// First all headers, without payloads: who knows how many rows there will be takes memory once.
void Reader::find_chunks() {
  std::uint64_t sequence = 0;
  while (std::optional<Chunk> chunk = file_.next(damage_)) {
    const ChunkHeader& header = chunk->header;
    if (header.sequence < sequence) {
      ++damage_.out_of_order[header.kind];
      continue;
    }
    damage_.missing_chunks += header.sequence - sequence;
    sequence = std::uint64_t{header.sequence} + 1;
    switch (header.kind) {
      case ChunkKind::kMeta:
        meta_chunk_ = chunk;
        break;
      case ChunkKind::kTrailer:
        trailer_chunk_ = chunk;
        break;
      case ChunkKind::kSamples:
        sample_chunks_.push_back(*chunk);
        samples_expected_ = std::max(samples_expected_, header.first + header.count);
        break;
      case ChunkKind::kEnd:
        end_seen_ = true;
        samples_expected_ = std::max(samples_expected_, header.first);
        file_.stop(damage_);
        break;
      default:
        if (chunk_kind_text(header.kind).empty()) {
          ++damage_.unknown[header.kind];
        } else {
          table_chunks_.push_back(*chunk);
        }
    }
  }
}

void Reader::read_tables() {
  std::map<ChunkKind, std::uint64_t> rows;
  for (const Chunk& chunk : table_chunks_) {
    rows[chunk.header.kind] =
        std::max(rows[chunk.header.kind], chunk.header.first + chunk.header.count);
  }
  for (const auto& [kind, count] : rows) builder_.reserve(kind, count);
  for (const Chunk& chunk : table_chunks_) {
    if (auto raw = file_.load(chunk, damage_)) builder_.add(chunk.header, *raw, damage_);
  }
  table_chunks_ = {};
}

std::string_view Reader::load_text(const std::optional<Chunk>& chunk) {
  if (!chunk) return {};
  auto raw = file_.load(*chunk, damage_);
  if (!raw) return {};
  return {reinterpret_cast<const char*>(raw->data()), raw->size()};
}

void Reader::read_ends() {
  std::optional<Meta> meta = meta_from_json(load_text(meta_chunk_));
  std::optional<TrailerAndMeta> trailer = trailer_from_json(load_text(trailer_chunk_));
  if (!meta && trailer && trailer->meta) {
    meta = std::move(trailer->meta);
    damage_.meta_from_trailer = true;
  }
  damage_.meta_lost = !meta;
  meta_ = std::move(meta).value_or(Meta{});
  complete_ = end_seen_ && trailer;
  if (trailer) {
    trailer_ = std::move(trailer->trailer);
  } else {
    trailer_.reason = "unknown";
    damage_.trailer_lost = end_seen_;
  }
}

// Decodes every sample once, so that what damage() and sample_count() say is all there is to say.
void Reader::check_samples() {
  std::vector<Chunk> good;
  std::vector<std::uint64_t> last_times;
  std::uint64_t first_time = UINT64_MAX;
  std::uint64_t last_time = 0;
  const bool keep = samples_expected_ <= kKeptSamples;
  if (keep) kept_.reserve(static_cast<std::size_t>(samples_expected_));
  for (const Chunk& chunk : sample_chunks_) {
    auto raw = file_.load(chunk, damage_);
    if (!raw) continue;
    if (!decoder_.decode(*raw, chunk.header.count, samples_)) {
      ++damage_.malformed[ChunkKind::kSamples];
      continue;
    }
    good.push_back(chunk);
    sample_count_ += samples_.size();
    if (meta_.period_ns == 0) meta_.period_ns = decoder_.period_ns();
    for (Sample& sample : samples_) {
      make_lost_rows(sample);
      mend_ids(sample, builder_.tables().stacks.size());
      if (raise_time(sample, last_times)) ++damage_.samples_out_of_order;
      if (builder_.stack_is_lost(sample.stack) || builder_.context_is_lost(sample.context) ||
          builder_.thread_is_lost(sample.thread)) {
        ++damage_.samples_partly_lost;
      }
      first_time = std::min(first_time, sample.time_ns);
      last_time = std::max(last_time, sample.time_ns);
    }
    if (keep && sample_count_ <= kKeptSamples)
      kept_.insert(kept_.end(), samples_.begin(), samples_.end());
  }
  sample_chunks_ = std::move(good);
  samples_ = {};
  if (kept_.size() != sample_count_) kept_ = {};  // their numbers said less
  if (samples_expected_ > sample_count_) damage_.samples_lost = samples_expected_ - sample_count_;

  if (sample_count_ == 0) return;
  if (meta_.start_ns == 0 || meta_.start_ns > first_time) meta_.start_ns = first_time;
  // A command of ours has no Python yet when the recording begins, and torch may be imported later.
  for (const Process& process : builder_.tables().processes) {
    if (process.pid != meta_.target_pid) continue;
    const auto& strings = builder_.tables().strings;
    if (meta_.python.empty()) meta_.python = strings[process.python];
    if (meta_.torch.empty()) meta_.torch = strings[process.torch];
  }
  if (meta_.frequency_hz == 0 && meta_.period_ns > 0) {
    meta_.frequency_hz = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(1'000'000'000 / meta_.period_ns, UINT32_MAX));
  }
  trailer_.end_ns = std::max(trailer_.end_ns, last_time);
}

void Reader::make_lost_rows(const Sample& sample) {
  const Tables& tables = builder_.tables();
  if (sample.stack >= tables.stacks.size()) lost_.stack = builder_.lost_stack();
  if (sample.context >= tables.contexts.size()) lost_.context = builder_.lost_context();
  if (sample.thread >= tables.threads.size()) lost_.thread = builder_.lost_thread();
}

void Reader::mend_ids(Sample& sample, std::size_t stacks) const {
  const Tables& tables = builder_.tables();
  if (sample.stack >= stacks) sample.stack = lost_.stack;
  if (sample.context >= tables.contexts.size()) sample.context = lost_.context;
  if (sample.thread >= tables.threads.size()) sample.thread = lost_.thread;
}

// True if the time was before that of the thread's last sample.
bool Reader::raise_time(Sample& sample, std::vector<std::uint64_t>& last_times) {
  if (sample.thread >= last_times.size()) last_times.resize(sample.thread + std::size_t{1});
  std::uint64_t& last = last_times[sample.thread];
  const bool raised = sample.time_ns < last;
  last = sample.time_ns = std::max(sample.time_ns, last);
  return raised;
}

void Reader::for_each_sample(const std::function<void(const Sample&)>& visit) const {
  const Tables& tables = builder_.tables();
  if (kept_.size() == sample_count_) {
    for (Sample sample : kept_) {
      sample.stack = shown_.now(sample.stack);
      visit(sample);
    }
    return;
  }
  std::vector<std::uint64_t> last_times(tables.threads.size());
  std::vector<Sample> samples;
  Damage known;  // and reported already
  for (const Chunk& chunk : sample_chunks_) {
    // Fails only if the file was changed since it was opened.
    auto raw = file_.load(chunk, known);
    if (!raw || !decoder_.decode(*raw, chunk.header.count, samples)) continue;
    for (Sample& sample : samples) {
      mend_ids(sample, stack_count_);
      sample.stack = shown_.now(sample.stack);
      if (sample.thread >= tables.threads.size()) continue;
      raise_time(sample, last_times);
      visit(sample);
    }
  }
}

}  // namespace

static Result<std::unique_ptr<Recording>> open_file(Result<ChunkFile> file,
                                                    bool inlined_shown = true) {
  if (!file) return std::move(file).error();
  auto reader = std::make_unique<Reader>(std::move(file).value());
  reader->read(inlined_shown);
  return std::unique_ptr<Recording>(std::move(reader));
}

Result<std::unique_ptr<Recording>> open_fd(UniqueFd file, const std::string& name,
                                           bool inlined_shown) {
  return open_file(ChunkFile::from_fd(std::move(file), name), inlined_shown);
}

}  // namespace recording

Result<std::unique_ptr<Recording>> Recording::open(const std::string& path) {
  return recording::open_file(recording::ChunkFile::open(path));
}

Result<std::unique_ptr<Recording>> Recording::open_as_recorded(const std::string& path) {
  return recording::open_file(recording::ChunkFile::open(path), false);
}

}  // namespace dynprof
