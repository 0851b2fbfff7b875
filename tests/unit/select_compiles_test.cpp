// Which compiles a person means by a text.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "symbolizer/export/select.h"
#include "tests/unit/fake_torch.h"

namespace dynprof {
namespace {

struct SelectCompiles : testing::Test {
  FakeRecording fake;
  FakeTorch torch{fake};
  ThreadId thread = fake.thread(100, 100);

  std::vector<std::string> found(const char* text) {
    Attribution attribution(fake);
    std::vector<std::string> labels;
    auto compiles = find_compiles(attribution, text);
    if (!compiles) return {compiles.error().what, compiles.error().hint};
    for (CompileIndex i : *compiles) labels.push_back(attribution.label(i));
    return labels;
  }
  using Labels = std::vector<std::string>;
};

TEST_F(SelectCompiles, ABackwardOfAnyAttempt) {
  fake.sample(thread, torch.tracing(), torch.forward(0, 0, 0, 0x1000));
  fake.sample(thread, torch.lowering_backward(), torch.backward_of(0, 0, 1, 0x2000));
  EXPECT_EQ(found("backward 0/0"), Labels{"backward 0/0_1"});
  EXPECT_EQ(found("backward 0/0_1"), Labels{"backward 0/0_1"});
  EXPECT_EQ(found("backward 0/1"),
            (Labels{"no compile backward 0/1", "there is 0/0, backward 0/0_1"}));
}

TEST_F(SelectCompiles, AFunctionByItsNumber) {
  for (auto [frame, compile] : {std::pair{4, 0}, {1, 0}, {4, 1}, {40, 0}}) {
    fake.sample(thread, torch.tracing(), torch.forward(frame, compile, 0, 0x1000));
    fake.sample(thread, torch.running());
  }
  EXPECT_EQ(found("4"), (Labels{"4/0", "4/1"}));
  EXPECT_EQ(found("5").front(), "no compile 5");
  EXPECT_EQ(found("99999999999999999999").front(), "no compile 99999999999999999999");
  EXPECT_EQ(found("").front(), "no compile ");
}

}  // namespace
}  // namespace dynprof
