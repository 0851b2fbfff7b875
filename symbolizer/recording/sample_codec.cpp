#include "symbolizer/recording/sample_codec.h"

#include "symbolizer/base/byte_reader.h"
#include "symbolizer/recording/format.h"

namespace dynprof::recording {
namespace {

// (value, how many samples have it - 1), ...
template <class Get>
void encode_runs(std::span<const Sample> samples, const Get& get, ByteWriter& out) {
  for (std::size_t i = 0; i < samples.size();) {
    std::size_t next = i + 1;
    while (next < samples.size() && get(samples[next]) == get(samples[i])) ++next;
    out.varint(get(samples[i]));
    out.varint(next - i - 1);
    i = next;
  }
}

class RunReader {
 public:
  explicit RunReader(std::span<const std::uint8_t> bytes) : in_(bytes) {}
  std::uint64_t next() {
    if (left_ > 0) {
      --left_;
      return value_;
    }
    value_ = in_.varint();
    left_ = in_.varint();
    return value_;
  }
  bool ok() const { return in_.ok(); }
  bool done() const { return in_.done() && left_ == 0; }
  void fail() { in_.fail(); }

 private:
  ByteReader in_;
  std::uint64_t value_ = 0;
  std::uint64_t left_ = 0;
};

}  // namespace

void SampleEncoder::encode(std::span<const Sample> samples, ByteWriter& out) {
  const std::uint64_t base = samples.empty() ? 0 : samples.front().time_ns;
  for (ByteWriter* column :
       {&thread_column_, &time_column_, &stack_column_, &context_column_, &flags_column_}) {
    column->clear();
  }
  threads_.clear();
  for (const Sample& sample : samples) {
    if (sample.thread >= local_.size()) local_.resize(sample.thread + 1);
    std::uint32_t& local = local_[sample.thread];
    if (local == 0) {
      threads_.push_back(ThreadState{sample.thread, base - period_ns_, 0});
      local = static_cast<std::uint32_t>(threads_.size());
    }
    ThreadState& last = threads_[local - 1];
    thread_column_.varint(local - 1);
    time_column_.difference(sample.time_ns, last.time_ns + period_ns_);
    stack_column_.difference(sample.stack, last.stack);
    last.time_ns = sample.time_ns;
    last.stack = sample.stack;
  }
  encode_runs(
      samples, [](const Sample& sample) { return sample.context; }, context_column_);
  encode_runs(
      samples, [](const Sample& sample) { return sample.flags; }, flags_column_);

  out.varint(period_ns_);
  out.varint(base);
  out.varint(threads_.size());
  for (const ThreadState& state : threads_) {
    out.varint(state.thread);
    local_[state.thread] = 0;
  }
  out.sized(thread_column_.view());
  out.sized(time_column_.view());
  out.sized(stack_column_.view());
  out.sized(context_column_.view());
  out.sized(flags_column_.view());
}

bool SampleDecoder::decode(std::span<const std::uint8_t> raw, std::uint32_t count,
                           std::vector<Sample>& out) {
  out.clear();
  if (count > kMaxSamplesPerChunk) return false;
  ByteReader in(raw);
  period_ns_ = in.varint();
  const std::uint64_t base = in.varint();
  // Each thread has at least one sample.
  const std::uint64_t thread_count = in.varint_up_to(count);
  threads_.clear();
  for (std::uint64_t i = 0; i < thread_count && in.ok(); ++i) {
    threads_.push_back(ThreadState{in.varint32(), base - period_ns_, 0});
  }
  ByteReader thread_column(in.sized());
  ByteReader time_column(in.sized());
  ByteReader stack_column(in.sized());
  RunReader contexts(in.sized());
  RunReader flags(in.sized());
  if (!in.done()) return false;

  out.reserve(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint64_t local = thread_column.varint();
    if (local >= threads_.size()) return false;
    ThreadState& last = threads_[local];
    last.time_ns = time_column.plus_difference(last.time_ns + period_ns_);
    last.stack = stack_column.plus_difference32(last.stack);
    const std::uint64_t context = contexts.next();
    const std::uint64_t flag_bits = flags.next();
    if (context > kMaxId || flag_bits > 0xff) return false;
    out.push_back(Sample{last.time_ns, last.thread, last.stack, static_cast<ContextId>(context),
                         static_cast<std::uint8_t>(flag_bits)});
  }
  return thread_column.done() && time_column.done() && stack_column.done() && contexts.done() &&
         flags.done();
}

}  // namespace dynprof::recording
