// What GPU work adds up to for each compiled region: copies, memsets and streams.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "symbolizer/attribution/gpu_streams.h"
#include "symbolizer/attribution/gpu_summary.h"
#include "symbolizer/export/gpu_json.h"
#include "symbolizer/profile/analysis.h"
#include "symbolizer/report/report.h"
#include "tests/unit/fake_gpu.h"

namespace dynprof {
namespace {

using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::ordered_json;

TEST(GpuStreams, TimesOfOneAndOfSeveral) {
  GpuStreams streams;
  EXPECT_EQ(streams.times().busy_ns, 0u);
  streams.add(1, 0, 100);
  streams.add(1, 50, 120);  // of the same stream: 20 more
  streams.add(2, 60, 80);
  streams.add(3, 70, 90);  // three streams from 70 to 80
  streams.add(2, 110, 200);
  streams.add(3, 190, 180);  // ends before it begins
  const GpuStreams::Times times = streams.times();
  EXPECT_EQ(times.busy_ns, 200u);
  EXPECT_EQ(times.overlap_ns, 30u + 10u);
  EXPECT_EQ(streams.streams().at(1).busy_ns, 120u);
  EXPECT_EQ(streams.streams().at(2).busy_ns, 20u + 90u);
  EXPECT_EQ(streams.streams().at(3).busy_ns, 20u);
}

// Two runs of 0/0 with a copy, a memset and a second stream, and a run of 1/0 with one kernel.
struct GpuRegion : testing::Test {
  GpuRegion() {
    run(fake, thread, "Torch-Compiled Region: 0/0", 100, 200);
    run(fake, thread, "Torch-Compiled Region: 0/0", 1000, 1100);
    run(fake, thread, "Torch-Compiled Region: 1/0", 2000, 2100);
    for (std::uint32_t i = 1; i <= 5; ++i) gpu.call(thread, i, 100 + 10 * i, 5);
    gpu.memory(thread, DYNPROF_GPU_MEMCPY, 1, 120, 10, 3 << 20);
    gpu.memory(thread, DYNPROF_GPU_MEMSET, 2, 130, 2, 512);
    gpu.kernel(thread, 3, 140, 40);
    gpu.kernel(thread, 4, 150, 20, "_Z5otherPf", 13);
    gpu.kernel(thread, 5, 190, 8);
    gpu.call(thread, 6, 1010, 5);
    gpu.memory(thread, DYNPROF_GPU_MEMCPY, 6, 1020, 30, 1 << 20, 13);
    gpu.call(thread, 7, 2010, 5);
    gpu.kernel(thread, 7, 2020, 30);
  }

  FakeRecording fake;
  ThreadId thread = fake.thread(100, 100, "python3");
  FakeGpu gpu{fake};
};

TEST_F(GpuRegion, CopiesMemsetsAndStreams) {
  Attribution attribution(fake);
  const GpuSummary summary = summarize(GpuWork(attribution));
  ASSERT_EQ(summary.regions.size(), 2u);
  const GpuRegionRow& row = summary.regions[0];
  EXPECT_EQ(row.id.text(), "0/0");
  EXPECT_EQ(row.works, 6u);
  EXPECT_EQ(row.copies.count, 2u);
  EXPECT_EQ(row.copies.bytes, std::uint64_t{4} << 20);
  EXPECT_EQ(row.copies.ns, (10 + 30) * kUs);
  EXPECT_EQ(row.memsets.count, 1u);
  EXPECT_EQ(row.memsets.bytes, 512u);
  EXPECT_EQ(row.memsets.ns, 2 * kUs);
  EXPECT_EQ(row.busy_ns, (10 + 2 + 40 + 8 + 30) * kUs);
  EXPECT_EQ(row.overlap_ns, 20 * kUs) << "from 150 to 170";
  using Key = std::pair<std::uint32_t, std::uint32_t>;
  EXPECT_EQ(row.streams, (std::map<Key, std::uint64_t>{{{0, 7}, (10 + 2 + 40 + 8) * kUs},
                                                       {{0, 13}, (20 + 30) * kUs}}));
  const GpuRegionRow& plain = summary.regions[1];
  EXPECT_EQ(plain.copies.count + plain.memsets.count + plain.overlap_ns, 0u);
  EXPECT_EQ(plain.busy_ns, 30 * kUs);
}

TEST_F(GpuRegion, CopiesMemsetsAndStreamsAreInJson) {
  Attribution attribution(fake);
  const Json region = gpu_json(Analysis(attribution))["regions"][0];
  EXPECT_EQ(region["copies"], Json({{"count", 2}, {"bytes", 4 << 20}, {"total_s", 40e-6}}));
  EXPECT_EQ(region["memsets"], Json({{"count", 1}, {"bytes", 512}, {"total_s", 2e-6}}));
  EXPECT_EQ(region["busy_s"], Json(90e-6));
  EXPECT_EQ(region["overlap_s"], Json(20e-6));
  Json streams = Json::array();
  streams.push_back({{"device", 0}, {"id", 7}, {"busy_s", 60e-6}});
  streams.push_back({{"device", 0}, {"id", 13}, {"busy_s", 50e-6}});
  EXPECT_EQ(region["streams"], streams);
}

TEST_F(GpuRegion, CopiesMemsetsAndStreamsAreBelowTheTable) {
  Attribution attribution(fake);
  const std::string report = render_report(Analysis(attribution), {});
  EXPECT_THAT(report,
              HasSubstr("# 0/0: 2 copies (4.0 MiB, 40.0 us); 1 memset (0.5 KiB, 2.0 us); "
                        "2 streams, two or more of them at\n#   once for 20.0 us of 90.0 us\n"));
  EXPECT_THAT(report, Not(HasSubstr("# 1/0:")));
}

TEST_F(GpuRegion, LaunchesOfCudaGraphsAreCounted) {
  gpu.call(thread, 8, 2030, 5, 0, kGraphLaunch);
  gpu.kernel(thread, 8, 2040, 10);
  gpu.kernel(thread, 8, 2050, 10);
  Attribution attribution(fake);
  const Analysis analysis(attribution);
  const Json regions = gpu_json(analysis)["regions"];
  EXPECT_EQ(regions[0]["graph_launches"], Json(0));
  EXPECT_EQ(regions[1]["launches"], Json(2));
  EXPECT_EQ(regions[1]["graph_launches"], Json(1));
  EXPECT_THAT(render_report(analysis, {}), HasSubstr("# 1/0: 1 launch of a CUDA graph\n"));
}

TEST_F(GpuRegion, CudaGraphsThatTorchRecordedAreCounted) {
  const auto phase = [&](std::uint64_t begin_us, std::uint64_t end_us) {
    SpanEdge edge;
    edge.thread = thread;
    edge.name = fake.string("CUDAGraphNode.record");
    edge.depth = 1;
    edge.kind = EdgeKind::kPhaseBegin;
    edge.time_ns = gpu.time(begin_us);
    fake.edge(edge);
    edge.kind = EdgeKind::kPhaseEnd;
    edge.time_ns = gpu.time(end_us);
    fake.edge(edge);
  };
  phase(105, 150);
  phase(1005, 1010);
  phase(1500, 1600);  // of no region
  std::ranges::stable_sort(fake.edit_tables().edges, {}, &SpanEdge::time_ns);
  Attribution attribution(fake);
  const Analysis analysis(attribution);
  const Json regions = gpu_json(analysis)["regions"];
  EXPECT_EQ(regions[0]["graphs_recorded"], Json(2));
  EXPECT_EQ(regions[0]["graph_record_s"], Json(50e-6));
  EXPECT_EQ(regions[1]["graphs_recorded"], Json(0));
  EXPECT_THAT(render_report(analysis, {}), HasSubstr("# 0/0: 2 CUDA graphs recorded in 50.0 us; "));
}

TEST(GpuRegionStreams, AtMost64AreInJson) {
  FakeRecording fake;
  ThreadId thread = fake.thread(100, 100, "python3");
  run(fake, thread, "Torch-Compiled Region: 0/0", 100, 200);
  FakeGpu gpu(fake);
  gpu.call(thread, 1, 110, 5);
  for (std::uint32_t i = 0; i < 100; ++i) gpu.kernel(thread, 1, 120 + i, 5 + i, "_Z5plainPf", i);
  Attribution attribution(fake);
  const Json streams = gpu_json(Analysis(attribution))["regions"][0]["streams"];
  ASSERT_EQ(streams.size(), 64u);
  EXPECT_EQ(streams[0]["id"], Json(99)) << "the busiest";
}

}  // namespace
}  // namespace dynprof
