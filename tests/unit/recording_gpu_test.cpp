// GPU launches and records in a recording: what is written is what is read, and damage costs rows only.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "symbolizer/recording/row_codec.h"
#include "tests/unit/recording_example.h"

namespace dynprof {
namespace {

using recording::decode;
using recording::encode;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

GpuRecord random_record(std::mt19937& random) {
  GpuRecord row;
  auto* bytes = reinterpret_cast<unsigned char*>(&row.record);
  for (std::size_t i = 0; i < sizeof row.record; ++i)
    bytes[i] = static_cast<unsigned char>(random() % 3 == 0 ? random() : 0);
  row.record.kind = 1 + random() % DYNPROF_GPU_DEVICE;
  row.pid = static_cast<std::int32_t>(random());
  return row;
}

GpuLaunch random_launch(std::mt19937& random) {
  return {.time_ns = std::uint64_t{random()} << 32 | random(),
          .thread = static_cast<std::uint32_t>(random()),
          .correlation = static_cast<std::uint32_t>(random()),
          .call = static_cast<std::uint32_t>(random()),
          .stack = static_cast<std::uint32_t>(random()),
          .context = static_cast<std::uint32_t>(random()),
          .flags = static_cast<std::uint8_t>(random() % 4)};
}

template <class Row>
std::vector<Row> there_and_back(const std::vector<Row>& rows) {
  ByteWriter out;
  encode(std::span<const Row>(rows), out);
  std::vector<Row> back;
  EXPECT_TRUE(decode(out.view(), static_cast<std::uint32_t>(rows.size()), back));
  return back;
}

TEST(RecordingGpu, AnyRowComesBack) {
  std::mt19937 random(7);
  std::vector<GpuRecord> records;
  std::vector<GpuLaunch> launches;
  for (int i = 0; i < 2000; ++i) {
    records.push_back(random_record(random));
    launches.push_back(random_launch(random));
  }
  EXPECT_EQ(there_and_back(records), records);
  EXPECT_EQ(there_and_back(launches), launches);
}

TEST(RecordingGpu, RepeatedKernelsTakeFewBytes) {
  std::mt19937 random(7);
  GpuRecord row = random_record(random);
  row.record.kind = DYNPROF_GPU_KERNEL;
  std::vector<GpuRecord> rows;
  for (std::uint32_t i = 0; i < 1000; ++i) {
    row.record.correlation += 1;
    row.record.start_ns += 5000;
    row.record.end_ns = row.record.start_ns + 3000;
    rows.push_back(row);
  }
  ByteWriter out;
  encode(std::span<const GpuRecord>(rows), out);
  EXPECT_LT(out.size(), 40u * rows.size());
}

TEST(RecordingGpu, TheExampleHasThem) {
  auto recording = read_bytes(example_bytes());
  ASSERT_TRUE(recording.has_value());
  EXPECT_THAT((*recording)->damage(), IsEmpty());
  const Tables& tables = (*recording)->tables();
  ASSERT_EQ(tables.gpu_launches.size(), 3u);
  ASSERT_EQ(tables.gpu_records.size(), 3u);
  EXPECT_EQ(tables.gpu_launches[1].correlation, 71u);
  EXPECT_EQ(tables.gpu_launches[1].flags, kGpuCallNested);
  EXPECT_EQ(tables.strings.at(tables.gpu_records[2].record.name), "forward_2");
  EXPECT_EQ(tables.gpu_records[2].record.kernel.grid[0], 8);
  EXPECT_EQ(tables.gpu_records[2].record.end_ns - tables.gpu_records[2].record.start_ns, 800u);
}

// As long recordings of a training loop are: hundreds of times smaller in the file than in memory.
TEST(RecordingGpu, MillionsOfEqualKernelsFitTheReadersMemory) {
  UniqueFd file = memory_file();
  UniqueFd copy(::dup(file.get()));
  auto writer = RecordingWriter::create(std::move(file), example_meta());
  ASSERT_TRUE(writer.has_value());
  GpuRecord row{.pid = 1};
  row.record.kind = DYNPROF_GPU_KERNEL;
  constexpr std::uint32_t kRows = 1'000'000;
  for (std::uint32_t i = 0; i < kRows; ++i) {
    row.record.correlation = i / 1000;
    row.record.start_ns += 100;
    row.record.end_ns = row.record.start_ns + 100;
    (*writer)->gpu_record(row);
  }
  ASSERT_TRUE((*writer)->finish({}).has_value());
  auto recording = recording::open_fd(std::move(copy), "test.dynprof");
  ASSERT_TRUE(recording.has_value());
  EXPECT_THAT((*recording)->damage(), IsEmpty());
  ASSERT_EQ((*recording)->tables().gpu_records.size(), kRows);
  EXPECT_EQ((*recording)->tables().gpu_records.back(), row);
}

TEST(RecordingGpu, KindsAndFlagsThatDoNotExistAreDamage) {
  for (std::uint8_t kind : {0, 7, 255}) {
    GpuRecord row;
    row.record.kind = DYNPROF_GPU_KERNEL;
    ByteWriter out;
    encode(std::span<const GpuRecord>(&row, 1), out);
    std::vector<std::uint8_t> bytes(out.view().begin(), out.view().end());
    bytes[0] = kind;
    std::vector<GpuRecord> back;
    EXPECT_FALSE(decode(bytes, 1, back)) << int{kind};
  }
  GpuLaunch launch;
  ByteWriter out;
  encode(std::span<const GpuLaunch>(&launch, 1), out);
  std::vector<std::uint8_t> bytes(out.view().begin(), out.view().end());
  bytes[0] = 32;
  std::vector<GpuLaunch> back;
  EXPECT_FALSE(decode(bytes, 1, back));
}

TEST(RecordingGpu, AnyBytesAreReadOrRefused) {
  std::mt19937 random(11);
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::uint8_t> bytes(random() % 200);
    for (auto& byte : bytes)
      byte = static_cast<std::uint8_t>(random() % 4 ? random() % 7 : random());
    std::vector<GpuRecord> records;
    std::vector<GpuLaunch> launches;
    EXPECT_TRUE(!decode(bytes, 3, records) || records.size() == 3u);
    EXPECT_TRUE(!decode(bytes, 3, launches) || launches.size() == 3u);
    for (const GpuRecord& row : records) {
      EXPECT_GE(row.record.kind, 1u);
      EXPECT_LE(row.record.kind, 6u);
    }
  }
}

// Cut anywhere: rows go from the end on, and those that are left are whole.
TEST(RecordingGpu, CutFilesKeepWholeRows) {
  const std::string whole = example_bytes();
  std::size_t before = 0;
  for (std::size_t size = 32; size < whole.size(); size += 7) {
    auto recording = read_bytes(std::string_view(whole).substr(0, size));
    ASSERT_TRUE(recording.has_value());
    const Tables& tables = (*recording)->tables();
    ASSERT_GE(tables.gpu_records.size() + 1, before);
    before = tables.gpu_records.size();
    for (std::size_t i = 0; i < tables.gpu_launches.size(); ++i) {
      EXPECT_EQ(tables.gpu_launches[i].correlation, 70u + i);
      ASSERT_LT(tables.gpu_launches[i].stack, tables.stacks.size());
      ASSERT_LT(tables.gpu_launches[i].thread, tables.threads.size());
      ASSERT_LT(tables.gpu_launches[i].context, tables.contexts.size());
    }
    for (const GpuRecord& row : tables.gpu_records)
      ASSERT_LT(row.record.name, tables.strings.size());
  }
  EXPECT_EQ(before, 3u);
}

}  // namespace
}  // namespace dynprof
