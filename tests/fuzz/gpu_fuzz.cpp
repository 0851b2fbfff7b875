// What of GPU tracing is foreign: events that hold the target's bytes, the payloads of chunks 16 and 17,
// an ELF file's probes, and text that names kernels. The first byte chooses which.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "symbolizer/attribution/gpu_names.h"
#include "symbolizer/base/byte_writer.h"
#include "symbolizer/base/result.h"
#include "symbolizer/base/unique_fd.h"
#include "symbolizer/recording/row_codec.h"
#include "user/gpu/gpu_view.h"
#include "user/gpu/usdt_notes.h"

using namespace dynprof;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace {

using Bytes = std::vector<std::uint8_t>;

dynprof_gpu_record record(std::uint32_t kind) {
  dynprof_gpu_record one = {};
  one.kind = kind;
  one.correlation = 7 + kind;
  one.start_ns = 1'000'000;
  one.end_ns = 1'000'400;
  one.stream = 7;
  one.name = 3;
  return one;
}

template <class Row>
Bytes payload_of(std::uint8_t kind, const std::vector<Row>& rows) {
  ByteWriter out;
  recording::encode(std::span<const Row>(rows), out);
  Bytes bytes{kind, static_cast<std::uint8_t>(rows.size())};
  bytes.insert(bytes.end(), out.view().begin(), out.view().end());
  return bytes;
}

// Well-formed ones: from nothing to them is too far.
std::vector<Bytes> examples() {
  std::vector<GpuLaunch> launches;
  std::vector<GpuRecord> records;
  Bytes batch{0, 0};
  batch.resize(2 + sizeof(dp_gpu_bytes));
  for (std::uint32_t i = 0; i < 8; ++i) {
    launches.push_back({1'000'000 + i * 700, 1, i, i, 2 * i, 0, static_cast<std::uint8_t>(i % 8)});
    const dynprof_gpu_record one = record(DYNPROF_GPU_KERNEL + i % DYNPROF_GPU_DEVICE);
    records.push_back({4242, one});
    const auto* raw = reinterpret_cast<const std::uint8_t*>(&one);
    batch.insert(batch.end(), raw, raw + sizeof one);
  }
  dp_gpu_bytes head = {};
  head.bytes = 8 * sizeof(dynprof_gpu_record);
  std::memcpy(batch.data() + 2, &head, sizeof head);
  Bytes line{4, 0};
  for (const char c : std::string_view("    triton_poi_fused_add_0.run(a, b, 8, stream=stream0)"))
    line.push_back(static_cast<std::uint8_t>(c));
  return {batch, payload_of(1, launches), payload_of(2, records), line};
}

void events(std::span<const std::byte> bytes) {
  if (auto records = decode_gpu_batch(bytes)) {
    DYNPROF_CHECK(records->size_bytes() + sizeof(dp_gpu_bytes) <= bytes.size());
    for (const dynprof_gpu_record& record : *records)
      DYNPROF_CHECK(!is_plausible(record) || record.end_ns >= record.start_ns);
  }
  if (auto name = decode_gpu_name(bytes)) DYNPROF_CHECK(name->text.size() <= DYNPROF_GPU_MAX_NAME);
  if (auto status = decode_gpu_status(bytes)) DYNPROF_CHECK(status->bytes >= sizeof *status);
  DYNPROF_CHECK(decode_gpu_stub(bytes).has_value() == (bytes.size() >= sizeof(dp_gpu_stub)));
}

// What can be read is the same after being written and read again.
template <class Row>
void payload(std::span<const std::uint8_t> raw, std::uint32_t count) {
  std::vector<Row> rows, again;
  const bool good = recording::decode(raw, count, rows);
  DYNPROF_CHECK(rows.size() <= count);
  if (!good) return;
  ByteWriter out;
  recording::encode(std::span<const Row>(rows), out);
  DYNPROF_CHECK(recording::decode(out.view(), count, again) && rows == again);
}

void notes(std::span<const std::uint8_t> bytes) {
  UniqueFd fd(::memfd_create("elf", MFD_CLOEXEC));
  if (fd.get() < 0 || ::write(fd.get(), bytes.data(), bytes.size()) < 0) return;
  auto found = read_usdt_notes(fd.get());
  if (!found) return;
  for (const UsdtNote& note : *found)
    DYNPROF_CHECK(note.provider.size() + note.name.size() <= bytes.size());
}

void names(std::string_view text) {
  const std::string_view kernel = launched_on_line(text);
  DYNPROF_CHECK(kernel.empty() || text.find(kernel) != std::string_view::npos);
  DYNPROF_CHECK(kernel_of_stub(text).size() <= text.size());
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned int seed) {
  static const std::vector<Bytes> all = examples();
  if (size < 8 || seed % 16 == 0) {
    const Bytes& chosen = all[seed / 16 % all.size()];
    if (max_size >= chosen.size()) {
      std::memcpy(data, chosen.data(), chosen.size());
      size = chosen.size();
    }
  }
  return LLVMFuzzerMutate(data, size, max_size);
}

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::uint32_t count = data[1];
  const std::span<const std::uint8_t> rest(data + 2, size - 2);
  switch (data[0] % 5) {
    case 0: {
      // As in the ring: aligned.
      std::vector<std::uint64_t> aligned(rest.size() / 8 + 1);
      if (!rest.empty()) std::memcpy(aligned.data(), rest.data(), rest.size());
      events(std::as_bytes(std::span(aligned)).first(rest.size()));
      break;
    }
    case 1:
      payload<GpuLaunch>(rest, count);
      break;
    case 2:
      payload<GpuRecord>(rest, count);
      break;
    case 3:
      notes(rest);
      break;
    default:
      names({reinterpret_cast<const char*>(rest.data()), rest.size()});
  }
  return 0;
}
