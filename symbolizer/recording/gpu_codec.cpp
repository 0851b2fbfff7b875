#include "symbolizer/recording/gpu_codec.h"

#include <array>
#include <bit>
#include <cstring>

#include "symbolizer/base/byte_reader.h"

namespace dynprof::recording {
namespace {

// What the kinds of records differ in, as 32-bit words; 64-bit numbers are two, the lower one first.
using Words = std::array<std::uint32_t, sizeof(dynprof_gpu_kernel) / sizeof(std::uint32_t)>;
static_assert(std::endian::native == std::endian::little, "words are stored as they are in memory");

Words words_of(const dynprof_gpu_record& record) {
  Words words;
  std::memcpy(words.data(), &record.kernel, sizeof words);
  return words;
}

}  // namespace

void encode(std::span<const GpuLaunch> launches, ByteWriter& out) {
  GpuLaunch last;
  for (const GpuLaunch& launch : launches) {
    out.u8(launch.flags);
    out.difference(launch.time_ns, last.time_ns);
    out.difference(launch.thread, last.thread);
    out.difference(launch.correlation, last.correlation);
    out.difference(launch.call, last.call);
    out.difference(launch.stack, last.stack);
    out.difference(launch.context, last.context);
    last = launch;
  }
}

bool decode(std::span<const std::uint8_t> raw, std::uint32_t count, std::vector<GpuLaunch>& out) {
  ByteReader in(raw);
  GpuLaunch last;
  for (std::uint32_t i = 0; i < count && in.ok(); ++i) {
    last.flags = in.u8();
    if (last.flags > (kGpuCallNested | kGpuCallBare | kGpuCallStub)) in.fail();
    last.time_ns = in.plus_difference(last.time_ns);
    last.thread = in.plus_difference32(last.thread);
    last.correlation = in.plus_difference32(last.correlation);
    last.call = in.plus_difference32(last.call);
    last.stack = in.plus_difference32(last.stack);
    last.context = in.plus_difference32(last.context);
    out.push_back(last);
  }
  return in.done();
}

// The words of a record mostly repeat those of the last one of its kind.
void encode(std::span<const GpuRecord> records, ByteWriter& out) {
  dynprof_gpu_record last = {};
  std::int32_t last_pid = 0;
  std::array<Words, DYNPROF_GPU_DEVICE + 1> last_words = {};
  for (const GpuRecord& row : records) {
    const dynprof_gpu_record& record = row.record;
    out.u8(static_cast<std::uint8_t>(record.kind));
    out.signed_varint(std::int64_t{row.pid} - last_pid);
    out.difference(record.correlation, last.correlation);
    out.difference(record.start_ns, last.start_ns);
    out.difference(record.end_ns, record.start_ns);
    out.difference(record.device, last.device);
    out.difference(record.context, last.context);
    out.difference(record.stream, last.stream);
    out.difference(record.name, last.name);
    out.difference(record.graph_node, last.graph_node);
    out.difference(record.graph, last.graph);
    out.difference(record.thread, last.thread);
    const Words words = words_of(record);
    Words& before = last_words[record.kind];
    for (std::size_t i = 0; i < words.size(); ++i) out.difference(words[i], before[i]);
    before = words;
    last = record;
    last_pid = row.pid;
  }
}

bool decode(std::span<const std::uint8_t> raw, std::uint32_t count, std::vector<GpuRecord>& out) {
  ByteReader in(raw);
  GpuRecord last;
  std::array<Words, DYNPROF_GPU_DEVICE + 1> last_words = {};
  for (std::uint32_t i = 0; i < count && in.ok(); ++i) {
    dynprof_gpu_record& record = last.record;
    record.kind = in.u8();
    if (record.kind < DYNPROF_GPU_KERNEL || record.kind > DYNPROF_GPU_DEVICE) {
      in.fail();
      break;
    }
    const std::int64_t pid = last.pid + in.signed_varint();
    if (pid < INT32_MIN || pid > INT32_MAX) in.fail();
    last.pid = static_cast<std::int32_t>(pid);
    record.correlation = in.plus_difference32(record.correlation);
    record.start_ns = in.plus_difference(record.start_ns);
    record.end_ns = in.plus_difference(record.start_ns);
    record.device = in.plus_difference32(record.device);
    record.context = in.plus_difference32(record.context);
    record.stream = in.plus_difference32(record.stream);
    record.name = in.plus_difference32(record.name);
    record.graph_node = in.plus_difference(record.graph_node);
    record.graph = in.plus_difference32(record.graph);
    record.thread = in.plus_difference32(record.thread);
    Words& words = last_words[record.kind];
    for (std::uint32_t& word : words) word = in.plus_difference32(word);
    std::memcpy(&record.kernel, words.data(), sizeof words);
    out.push_back(last);
  }
  return in.done();
}

}  // namespace dynprof::recording
