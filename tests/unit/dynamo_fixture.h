// A traced thread and the profiles of its compiles as text, for the tests of dynamo_profile.h.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "symbolizer/profile/dynamo_profile.h"
#include "tests/unit/fake_torch.h"
#include "tests/unit/fake_tracing.h"

namespace dynprof {

using List = std::vector<std::string>;

struct Dynamo : testing::Test {
  FakeRecording fake;
  ThreadId thread = fake.thread(100, 100);
  FakeTracing tracing{fake, thread};
  CodeId root = fake.code("job.py", "step", 10), f = fake.code("job.py", "f", 20),
         g = fake.code("job.py", "g", 30), h = fake.code("job.py", "h", 40);

  // Per function "name calls/primitive own cumulative", in ms, and its callers the same way after it.
  static std::string text(const DynamoCalls& calls) {
    return fmt::format("{}/{} {} {}", calls.calls, calls.primitive, calls.own_ns / 1'000'000,
                       calls.cumulative_ns / 1'000'000);
  }
  static List text(const DynamoProfile* profile) {
    if (profile == nullptr) return {"nothing"};
    List list;
    for (const DynamoFunction& function : profile->functions) {
      std::string line = fmt::format("{} {}", function.name, text(function.calls));
      for (const DynamoCaller& caller : function.callers) {
        line +=
            fmt::format(" < {} {}", profile->functions[caller.function].name, text(caller.calls));
      }
      list.push_back(line);
    }
    std::sort(list.begin(), list.end());
    if (profile->raised > 0) list.push_back(fmt::format("raised {}", profile->raised));
    if (profile->unfinished > 0) list.push_back(fmt::format("unfinished {}", profile->unfinished));
    return list;
  }
  // Of each compile, in their order.
  std::vector<List> all() {
    Attribution attribution(fake);
    DynamoProfiles profiles(attribution);
    lost = profiles.lost();
    std::vector<List> lists;
    for (CompileIndex i = 0; i < attribution.compiles().size(); ++i) {
      lists.push_back(text(profiles.of(i)));
      stems.push_back(attribution.file_stem(i));
    }
    return lists;
  }
  List one() {
    std::vector<List> lists = all();
    EXPECT_EQ(lists.size(), 1u);
    return lists.empty() ? List{} : lists[0];
  }
  std::uint64_t lost = 0;
  List stems;
};

}  // namespace dynprof
