#include <gtest/gtest.h>

#include "symbolizer/attribution/resolved.h"
#include "tests/unit/fake_recording.h"

namespace dynprof {
namespace {

TEST(Resolved, PythonFramesHaveTheLineOfTheirInstruction) {
  FakeRecording fake;
  FrameId running = fake.python("/a/f.py", "A.f", 10, 14);
  FrameId waiting = fake.python("/a/f.py", "A.f", 10);
  ResolvedFrames frames(fake.tables());
  EXPECT_EQ(frames[running].function, "A.f");
  EXPECT_EQ(frames[running].name, "f");
  EXPECT_EQ(frames[running].file, "/a/f.py");
  EXPECT_EQ(frames[running].first_line, 10);
  EXPECT_EQ(frames[running].line, 14);
  EXPECT_EQ(frames[waiting].line, 10) << "not started";
}

// The original is gone when torch's cache is cleared; the copy is in the output directory.
TEST(Resolved, GeneratedCodeIsNamedByItsCopy) {
  FakeRecording fake;
  FrameId wrapper = fake.python("/tmp/torchinductor_u/ab/cab.py", "call", 10, 14);
  FrameId graph =
      fake.python("<eval_with_key>.3 from proxy_tensor.py:1738 in wrapped", "forward", 4);
  FrameId other = fake.python("<eval_with_key>.30", "forward", 4);
  FrameId kernel = fake.python("/tmp/torchinductor_u/ab/main.cpp", "odd", 1);
  std::vector<GeneratedCopy> copies(4);
  copies[0].origin = "/tmp/torchinductor_u/ab/cab.py";
  copies[0].directory = "0_0";
  copies[0].name = "forward_wrapper.py";
  copies[1].origin = "<eval_with_key>.3";
  copies[1].directory = "unknown";
  copies[1].name = "eval_with_key_.3.py";
  copies[2].origin = "joint_graph_str";
  copies[2].name = "joint_graph.py";
  copies[3].origin = "/tmp/torchinductor_u/ab/main.cpp";
  copies[3].name = "kernel.cpp";
  ResolvedFrames frames(fake.tables(), copies);
  EXPECT_EQ(frames[wrapper].file, "generated/0_0/forward_wrapper.py");
  EXPECT_EQ(frames[wrapper].line, 14);
  EXPECT_TRUE(frames[wrapper].generated);
  EXPECT_EQ(frames[graph].file, "generated/unknown/eval_with_key_.3.py");
  EXPECT_EQ(frames[other].file, "<eval_with_key>.30");
  EXPECT_FALSE(frames[other].generated);
  EXPECT_EQ(frames[kernel].file, "/tmp/torchinductor_u/ab/main.cpp");
}

// Long tables are decoded once and searched: the same answers as for short ones.
TEST(Resolved, LongLineTablesAgreeWithShortOnes) {
  FakeRecording fake;
  std::string long_table, short_table;
  for (int unit = 0; unit < 4000; ++unit) {
    for (std::string* table : {&long_table, &short_table}) {
      if (table == &short_table && unit >= 400) continue;
      *table += static_cast<char>(0x80 | (13 << 3));
      *table += static_cast<char>(unit == 0 ? 0 : 2);
    }
  }
  auto code = [&](const std::string& table) {
    return fake.code(Code{.filename = fake.string("f.py"),
                          .name = fake.string("f"),
                          .qualname = fake.string("f"),
                          .first_line = 100,
                          .line_table = fake.blob(table),
                          .python = FakeRecording::kPython311});
  };
  CodeId large = code(long_table), small = code(short_table);
  std::vector<std::pair<FrameId, FrameId>> pairs;
  for (int unit = -1; unit < 400; ++unit) {
    pairs.emplace_back(fake.python(large, unit), fake.python(small, unit));
  }
  FrameId last = fake.python(large, 3999), beyond = fake.python(large, 4000);
  ResolvedFrames frames(fake.tables());
  for (auto [a, b] : pairs) EXPECT_EQ(frames[a].line, frames[b].line);
  EXPECT_EQ(frames[last].line, 4099);
  EXPECT_EQ(frames[beyond].line, 0) << "no such instruction";
}

TEST(Resolved, UnreadableFramesSaySo) {
  FakeRecording fake;
  FrameId stale =
      fake.python(fake.code(Code{.name = fake.string("wrong"), .unreadable = Unreadable::kStale}));
  FrameId native = fake.native("", "/lib/libx.so", 5);
  ResolvedFrames frames(fake.tables());
  EXPECT_EQ(frames[stale].function, "<stale code>");
  EXPECT_EQ(frames[stale].name, "<stale code>");
  EXPECT_EQ(frames[stale].line, 0);
  EXPECT_EQ(frames[native].unreadable, Unreadable::kNoSymbol);
  EXPECT_EQ(frames[native].function, "<no symbol>");
  EXPECT_EQ(frames[native].file, "/lib/libx.so");
}

TEST(Resolved, BaseNames) {
  EXPECT_EQ(base_name("/a/b.so"), "b.so");
  EXPECT_EQ(base_name("b.so"), "b.so");
  EXPECT_EQ(base_name("/a/"), "/a/");
  EXPECT_EQ(base_name(""), "");
}

}  // namespace
}  // namespace dynprof
