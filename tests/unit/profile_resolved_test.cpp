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
