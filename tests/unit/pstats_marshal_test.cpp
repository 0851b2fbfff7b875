#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "symbolizer/export/marshal_writer.h"
#include "symbolizer/export/pstats.h"
#include "symbolizer/profile/analysis.h"
#include "tests/unit/fake_torch.h"

namespace dynprof {
namespace {

std::string hex(const std::string& bytes) {
  std::string out;
  for (unsigned char c : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    out += kDigits[c >> 4];
    out += kDigits[c & 15];
  }
  return out;
}

// The expected bytes are those of marshal.dumps(value, 2) in CPython 3.11.
TEST(Marshal, Integers) {
  auto written = [](std::int64_t value) {
    MarshalWriter out;
    out.integer(value);
    return hex(out.take());
  };
  EXPECT_EQ(written(0), "6900000000");
  EXPECT_EQ(written(-1), "69ffffffff");
  EXPECT_EQ(written(2147483647), "69ffffff7f");
  EXPECT_EQ(written(-2147483648), "6900000080");
  EXPECT_EQ(written(2147483648), "6c03000000000000000200");
  EXPECT_EQ(written(-2147483649), "6cfdffffff010000000200");
  EXPECT_EQ(written(std::numeric_limits<std::int64_t>::max()), "6c05000000ff7fff7fff7fff7f0700");
  EXPECT_EQ(written(std::numeric_limits<std::int64_t>::min()), "6cfbffffff00000000000000000800");
}

TEST(Marshal, TextRealsTuplesAndDicts) {
  MarshalWriter out;
  out.begin_dict();
  out.begin_tuple(2);
  out.text("λ");
  out.real(1.5);
  out.text("\xff\xed\xb2\x80");
  out.end_dict();
  EXPECT_EQ(hex(out.take()),
            "7b"
            "2802000000"
            "7502000000cebb"
            "67000000000000f83f"
            "750a000000"
            "5c786666"
            "5c7564633830"
            "30");
}

TEST(Pstats, OneFunctionWithItsCaller) {
  FakeRecording fake;
  ThreadId thread = fake.thread(100, 100);
  fake.sample(thread, fake.stack({fake.python("a.py", "a", 1), fake.python("b.py", "K.b", 2)}), 0,
              0, 2);
  Attribution attribution(fake);
  const Analysis analysis(attribution);
  auto text = [](const std::string& s) {
    MarshalWriter out;
    out.text(s);
    return out.take();
  };
  auto numbers = [](int cc, int nc, double tt, double ct) {
    MarshalWriter out;
    out.integer(cc);
    out.integer(nc);
    out.real(tt);
    out.real(ct);
    return out.take();
  };
  MarshalWriter one, two, three, four, five;
  one.integer(1);
  two.integer(2);
  three.begin_tuple(3);
  four.begin_tuple(4);
  five.begin_tuple(5);
  std::string key_a = three.bytes() + text("a.py") + one.bytes() + text("a");
  std::string key_b = three.bytes() + text("b.py") + two.bytes() + text("b");
  EXPECT_EQ(pstats_bytes(analysis.session(), analysis.functions()),
            "{" + key_a + five.bytes() + numbers(0, 2, 0, 0.02) + "{0" + key_b + five.bytes() +
                numbers(2, 2, 0.02, 0.02) + "{" + key_a + four.bytes() + numbers(2, 2, 0.02, 0.02) +
                "00");
}

}  // namespace
}  // namespace dynprof
