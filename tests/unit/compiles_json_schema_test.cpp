#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "symbolizer/export/compiles_json.h"
#include "tests/unit/fake_torch.h"

namespace dynprof {
namespace {

using Json = nlohmann::ordered_json;

struct CompilesJson : testing::Test {
  FakeRecording fake;
  FakeTorch torch{fake};
  ThreadId thread = fake.thread(100, 103);

  Json json() {
    Attribution attribution(fake);
    return Json::parse(compiles_json(attribution, StackCounts(attribution)));
  }
};

// The schema is a contract: these fields, in this order; later ones come after.
TEST_F(CompilesJson, FieldsAreThoseOfTheSchema) {
  fake.sample(thread, torch.running());
  fake.sample(thread, torch.tracing(), torch.forward(0, 0, 0, 0x1000));
  Json document = json();
  std::vector<std::string> top{"version",      "pid",     "torch", "python",
                               "frequency_hz", "samples", "lost",  "compiles"};
  std::vector<std::string> each{
      "trace_id",        "attempt", "kind",     "function", "file",         "line",
      "process",         "thread",  "start_ns", "wall_s",   "cpu_s",        "wait_s",
      "children_cpu_s",  "exact",   "complete", "phases",   "graph_breaks", "recompile_reason",
      "restart_reasons", "failed",  "samples",  "generated"};
  auto check = [](const Json& object, const std::vector<std::string>& names) {
    std::size_t i = 0;
    for (auto it = object.begin(); it != object.end() && i < names.size(); ++it, ++i) {
      EXPECT_EQ(it.key(), names[i]);
    }
    EXPECT_EQ(i, names.size());
  };
  check(document, top);
  check(document["compiles"][0], each);
  check(document["compiles"][0]["phases"][0], {"name", "wall_s", "cpu_s", "samples"});
  EXPECT_EQ(document["version"], 1);
  EXPECT_EQ(document["pid"], 100);
  EXPECT_EQ(document["torch"], "2.13.0+cpu");
}

TEST_F(CompilesJson, WhatIsKnownAndWhatIsNot) {
  CodeId user = fake.code("/home/me/model.py", "Block.forward", 7);
  fake.edit_trailer().counters = {{"samples", 9}, {"ring_full", 2}, {"truncated", 0}};
  fake.sample(thread, torch.running());
  fake.sample(thread, torch.tracing(), torch.forward(0, 1, 1, 0x1000, user), 0, 2);
  fake.skip(5);
  fake.sample(thread, torch.lowering(), torch.forward(0, 1, 1, 0x1000, user));
  fake.sample(thread, torch.running());
  Json document = json();
  EXPECT_EQ(document["samples"], 5);
  EXPECT_EQ(document["lost"], (Json{{"ring_full", 2}, {"truncated", 0}}));
  ASSERT_EQ(document["compiles"].size(), 2u);

  const Json& never_sampled = document["compiles"][0];
  EXPECT_EQ(never_sampled["attempt"], 0);
  EXPECT_EQ(never_sampled["samples"], 0);
  for (const char* time : {"start_ns", "wall_s", "cpu_s", "wait_s", "children_cpu_s"}) {
    EXPECT_TRUE(never_sampled[time].is_null()) << time << " is not known, so not 0";
  }
  EXPECT_EQ(never_sampled["phases"], Json::array());

  const Json& compile = document["compiles"][1];
  EXPECT_EQ(compile["trace_id"], "0/1");
  EXPECT_EQ(compile["attempt"], 1);
  EXPECT_EQ(compile["kind"], "forward");
  EXPECT_EQ(compile["function"], "forward");
  EXPECT_EQ(compile["file"], "/home/me/model.py");
  EXPECT_EQ(compile["line"], 7);
  EXPECT_EQ(compile["process"], 100);
  EXPECT_EQ(compile["thread"], 103);
  EXPECT_EQ(compile["start_ns"], 1'010'000'000);
  EXPECT_EQ(compile["wall_s"], 0.08);
  EXPECT_EQ(compile["cpu_s"], 0.03);
  EXPECT_EQ(compile["exact"], false);
  EXPECT_EQ(compile["complete"], true);
  EXPECT_EQ(compile["phases"],
            Json::parse(R"([{"name":"dynamo","wall_s":null,"cpu_s":0.02,"samples":2},
                            {"name":"inductor","wall_s":null,"cpu_s":0.01,"samples":1}])"));
  EXPECT_TRUE(compile["recompile_reason"].is_null());
  EXPECT_TRUE(compile["failed"].is_null());
  EXPECT_EQ(compile["graph_breaks"], Json::array());
  EXPECT_EQ(compile["name"], "_compile_inner_0_1_1");
}

TEST_F(CompilesJson, IncompleteOnEitherSide) {
  fake.sample(thread, torch.tracing(), torch.forward(0, 0, 0, 0x1000));
  fake.sample(thread, torch.tracing(), torch.forward(1, 0, 0, 0x1000));
  fake.sample(thread, torch.tracing(), torch.forward(2, 0, 0, 0x1000));
  Json document = json();
  EXPECT_EQ(document["compiles"][0]["complete"], false);
  EXPECT_EQ(document["compiles"][1]["complete"], true);
  EXPECT_EQ(document["compiles"][2]["complete"], false);
}

TEST_F(CompilesJson, NamesThatAreNotUtf8StayJson) {
  CodeId user = fake.code("/\xff/\"\n.py", "\xed\xb2\x80", 7);
  fake.edit_meta().torch = "\xfe";
  fake.edit_meta().python = "";
  fake.edit_meta().target_pid = 0;
  fake.sample(thread, torch.tracing(), torch.forward(0, 0, 0, 0x1000, user));
  Json document = json();
  EXPECT_EQ(document["torch"], "\xef\xbf\xbd");
  EXPECT_TRUE(document["python"].is_null());
  EXPECT_TRUE(document["pid"].is_null());
  EXPECT_EQ(document["compiles"][0]["file"], "/\xef\xbf\xbd/\"\n.py");
}

TEST_F(CompilesJson, AnEmptyRecording) {
  Json document = json();
  EXPECT_EQ(document["samples"], 0);
  EXPECT_EQ(document["compiles"], Json::array());
}

}  // namespace
}  // namespace dynprof
