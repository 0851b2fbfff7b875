// What the flame graph of the page is made of: sums by group, and what is folded away.
#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "symbolizer/export/html/flame_data.h"
#include "tests/unit/fake_training.h"
#include "tests/unit/page_data.h"

namespace dynprof {
namespace {

using Json = nlohmann::json;

// "group: a;b;c" -> ns on the CPU of the path's end itself.
std::map<std::string, std::uint64_t> sums(const FlameData& flame) {
  std::map<std::string, std::uint64_t> found;
  for (const FlameGroup& group : flame.groups())
    for (const FlameEntry& entry : group.entries)
      found[group.name + ": " + flame.path(entry.node)] += entry.cpu_ns;
  return found;
}

std::uint64_t whole(const FlameGroup& group) {
  return std::accumulate(
      group.entries.begin(), group.entries.end(), std::uint64_t{0},
      [](std::uint64_t sum, const FlameEntry& entry) { return sum + entry.whole_ns(); });
}

struct FlameDataTest : testing::Test {
  FakeRecording fake;
  ThreadId thread = fake.thread(100, 100, "python3");

  FlameData flame(std::size_t most = kMaxFlameEntries) {
    const Attribution attribution(fake);
    const Analysis analysis(attribution);
    FlameData made;
    made.add(analysis, {}, 0);
    made.prune(most);
    return made;
  }
};

constexpr std::uint64_t kPeriod = 10'000'000;

TEST_F(FlameDataTest, LinesOfAFunctionAreOneNode) {
  const FrameId main = fake.python("a.py", "main", 1, 2), other = fake.python("a.py", "main", 1, 3);
  const FrameId leaf = fake.native("memcpy", "/lib/libc.so.6");
  fake.sample(thread, fake.stack({main, leaf}), 0, 0, 2);
  fake.sample(thread, fake.stack({other, leaf}), 0, 0, 3);
  fake.sample(thread, fake.stack({main}));
  EXPECT_EQ(sums(flame()), (std::map<std::string, std::uint64_t>{
                               {"python3: main", kPeriod}, {"python3: main;memcpy", 5 * kPeriod}}));
}

TEST_F(FlameDataTest, ACompileBeginsAtTorchsFunction) {
  FakeTraining training;
  training.compile(0, 0);
  training.run(2);
  const Attribution attribution(training);
  const Analysis analysis(attribution);
  FlameData made;
  made.add(analysis, {}, 0);
  ASSERT_EQ(made.groups().size(), 2u);
  EXPECT_EQ(made.groups()[0].name, "0/0");
  EXPECT_EQ(made.group_of(0, 0), 0);
  EXPECT_EQ(made.group_of(0, 1), -1);
  for (const FlameEntry& entry : made.groups()[0].entries)
    EXPECT_EQ(made.path(entry.node).find("Block"), std::string::npos) << made.path(entry.node);
  EXPECT_EQ(made.groups()[1].name, "python3");
  EXPECT_EQ(made.groups()[1].samples, 2u);
}

TEST_F(FlameDataTest, WhatIsFoldedAwayIsCountedAndNothingIsLost) {
  const FrameId main = fake.python("a.py", "main", 1);
  const FrameId hot = fake.python("a.py", "hot", 10);
  fake.sample(thread, fake.stack({main, hot}), 0, 0, 1000);
  for (int i = 0; i < 50; ++i)
    fake.sample(thread,
                fake.stack({main, fake.python("a.py", "cold" + std::to_string(i), 100 + i)}));
  const FlameData all = flame();
  EXPECT_EQ(all.groups()[0].folded_nodes, 0u);
  const FlameData few = flame(3);
  const FlameGroup& group = few.groups()[0];
  EXPECT_EQ(group.folded_nodes, 50u);
  EXPECT_EQ(group.folded_ns, 50 * kPeriod);
  EXPECT_EQ(whole(group), whole(all.groups()[0]));
  EXPECT_EQ(sums(few),
            (std::map<std::string, std::uint64_t>{{"python3: main", 50 * kPeriod},
                                                  {"python3: main;hot", 1000 * kPeriod}}));
}

TEST_F(FlameDataTest, NoLimitIsExceeded) {
  FakeTraining training;
  training.whole_run();
  const Attribution attribution(training);
  const Analysis analysis(attribution);
  for (std::size_t most : {0u, 1u, 5u, 12u}) {
    FlameData made;
    made.add(analysis, {}, 0);
    made.prune(most);
    std::size_t nodes = 0;
    for (const FlameGroup& group : made.groups())
      for (const FlameEntry& entry : group.entries) nodes += entry.node != 0 ? 1 : 0;
    EXPECT_LE(nodes, most);
  }
}

TEST_F(FlameDataTest, TwoRecordingsShareTheirNodes) {
  FakeRecording second;
  const ThreadId other = second.thread(7, 7, "python3");
  second.sample(other, second.stack({second.python("/elsewhere/a.py", "main", 5)}), 0, 0, 4);
  fake.sample(thread, fake.stack({fake.python("/here/a.py", "main", 1)}));
  const Attribution of_a(fake), of_b(second);
  const Analysis a(of_a), b(of_b);
  FlameData made(/*by_name=*/true);
  made.add(a, {}, 0);
  made.add(b, {}, 1);
  ASSERT_EQ(made.groups().size(), 2u);
  EXPECT_EQ(made.groups()[0].entries[0].node, made.groups()[1].entries[0].node);
  EXPECT_EQ(made.groups()[1].side, 1);
}

TEST_F(FlameDataTest, TheWrittenNodesAreThoseOfTheTree) {
  const FrameId main = fake.python("a.py", "main", 1), leaf = fake.python("a.py", "leaf", 9);
  fake.sample(thread, fake.stack({main, leaf}), 0, 0, 2);
  fake.sample(thread, fake.stack({main}));
  PageSink sink;
  JsonWriter json(sink);
  flame().write(json);
  ASSERT_TRUE(json.finish());
  const Json written = Json::parse(sink.text);
  EXPECT_EQ(written["names"], (Json{"main", "leaf"}));
  EXPECT_EQ(written["parentBefore"], (Json{1, 1}));  // 1 below the root, 2 below 1
  EXPECT_EQ(written["labelOf"], (Json{0, 1}));
  EXPECT_EQ(written["groups"][0]["nodes"], (Json{1, 1}));
  EXPECT_EQ(written["groups"][0]["cpuOf"], (Json{10'000, 20'000}));
  EXPECT_EQ(written["groups"][0]["period"], 10'000);
}

}  // namespace
}  // namespace dynprof
