// The user functions Dynamo traced, as a pstats file and as lines of the report.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "symbolizer/base/text.h"
#include "symbolizer/export/dynamo_pstats.h"
#include "symbolizer/report/dynamo_table.h"
#include "tests/unit/fake_tracing.h"

namespace dynprof {
namespace {

// ---- what marshal.loads makes of a pstats file -------------------------------------------------

using Key = std::tuple<std::string, std::int64_t, std::string>;
struct Numbers {
  std::int64_t first, second;
  double own, cumulative;
  auto operator<=>(const Numbers&) const = default;
};
struct Entry {
  Numbers numbers;
  std::map<Key, Numbers> callers;
};

class Unmarshal {
 public:
  explicit Unmarshal(std::string bytes) : bytes_(std::move(bytes)) {}

  std::map<Key, Entry> stats() {
    std::map<Key, Entry> all;
    expect('{');
    while (!at_end()) {
      Key name = key();
      tuple(5);
      Entry entry{numbers(), {}};
      expect('{');
      while (!at_end()) {
        Key caller = key();
        tuple(4);
        EXPECT_TRUE(entry.callers.emplace(caller, numbers()).second);
      }
      EXPECT_TRUE(all.emplace(name, entry).second);
    }
    EXPECT_EQ(at_, bytes_.size());
    return all;
  }

 private:
  bool at_end() {
    if (at_ < bytes_.size() && bytes_[at_] != '0') return false;
    ++at_;
    return true;
  }
  void expect(char tag) {
    ASSERT_LT(at_, bytes_.size());
    ASSERT_EQ(bytes_[at_++], tag) << "at " << at_;
  }
  template <class T>
  T number() {
    T value{};
    if (at_ + sizeof value <= bytes_.size()) std::memcpy(&value, &bytes_[at_], sizeof value);
    at_ += sizeof value;
    return value;
  }
  void tuple(std::int32_t size) {
    expect('(');
    EXPECT_EQ(number<std::int32_t>(), size);
  }
  std::string text() {
    expect('u');
    auto size = static_cast<std::size_t>(number<std::int32_t>());
    std::string value = bytes_.substr(at_, size);
    at_ += size;
    return value;
  }
  std::int64_t integer() {
    expect('i');
    return number<std::int32_t>();
  }
  double real() {
    expect('g');
    return number<double>();
  }
  Key key() {
    tuple(3);
    std::string file = text();
    std::int64_t line = integer();
    return {file, line, text()};
  }
  Numbers numbers() {
    std::int64_t first = integer(), second = integer();
    double own = real();
    return {first, second, own, real()};
  }

  std::string bytes_;
  std::size_t at_ = 0;
};

struct DynamoOutput : testing::Test {
  FakeRecording fake;
  FakeTracing tracing{fake, fake.thread(100, 100)};
  CodeId root = fake.code("/home/me/job.py", "step", 10);
  CodeId f = fake.code("/home/me/job.py", "Block.f", 20);
  CodeId g = fake.code("/home/me/job.py", "g", 30);

  void trace() {
    tracing.compile("0/0", 0, root);
    tracing.enter(f);
    fake.pass_ms(1);
    tracing.enter(g);
    tracing.call(f, 2);
    tracing.raise();
    tracing.leave();
    fake.pass_ms(4);
    tracing.done();
  }
  std::string table(CompileIndex compile = 0) {
    Attribution attribution(fake);
    std::string out;
    append_dynamo_table(out, attribution, DynamoProfiles(attribution), compile);
    return out;
  }
  static std::vector<std::string> lines(const std::string& text) {
    std::vector<std::string> list;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) list.push_back(line);
    return list;
  }
};

TEST_F(DynamoOutput, PstatsReadBack) {
  trace();
  Attribution attribution(fake);
  auto stats = Unmarshal(dynamo_pstats_bytes(*DynamoProfiles(attribution).of(0))).stats();
  const Key step{"/home/me/job.py", 10, "step"}, f_key{"/home/me/job.py", 20, "f"},
      g_key{"/home/me/job.py", 30, "g"};
  ASSERT_EQ(stats.size(), 3u);
  // (primitive, calls, tottime, cumtime); callers (calls, primitive, tottime, cumtime).
  EXPECT_EQ(stats[step].numbers, (Numbers{1, 1, 0.004, 0.007}));
  EXPECT_TRUE(stats[step].callers.empty());
  EXPECT_EQ(stats[f_key].numbers, (Numbers{1, 2, 0.005, 0.003}));
  EXPECT_EQ(stats[f_key].callers,
            (std::map<Key, Numbers>{{step, {1, 1, 0.003, 0.003}}, {g_key, {1, 0, 0.002, 0.002}}}));
  // It only raised: there because it called.
  EXPECT_EQ(stats[g_key].numbers, (Numbers{0, 0, 0, 0}));
}

TEST_F(DynamoOutput, Table) {
  trace();
  EXPECT_EQ(table(),
            "#\n"
            "# User functions Dynamo traced: 3 calls (2 primitive) of 2 functions in 7.000 ms\n"
            "# pcalls: not inside the same function. tottime: without what was inlined.\n"
            "#    ncalls    pcalls tottime ms cumtime ms  Function (file:line), from its callers\n"
            "          1         1      4.000      7.000  step (job.py:10)\n"
            "          2         1      5.000      3.000  Block.f (job.py:20)\n"
            "          1         1      3.000      3.000    from step (job.py:10)\n"
            "          1         0      2.000      2.000    from g (job.py:30)\n"
            "# Not counted: 1 call that an exception ended; their time is their callers'.\n");
}

TEST_F(DynamoOutput, TheWholeTableHasDepthsAndSums) {
  trace();
  Attribution attribution(fake);
  const std::string text = dynamo_table_text(*DynamoProfiles(attribution).of(0), "0/0");
  const std::vector<std::string> found = lines(text);
  ASSERT_EQ(found.size(), 9u) << text;
  EXPECT_EQ(
      found[3],
      "        1         1        4.000        7.000    1024      0  step (/home/me/job.py:10)");
  EXPECT_EQ(found[4].substr(0, 44), "        2         1        5.000        3.00");
  EXPECT_EQ(found[7], "# Calls: 3, functions: 2. Sum of tottime: 9.000 ms, of cumtime: 10.000 ms");
  EXPECT_EQ(found[8], "# Not counted: 1 calls that an exception ended.");
}

TEST_F(DynamoOutput, FoldedStacksHaveEachChainOfCalls) {
  trace();
  Attribution attribution(fake);
  EXPECT_EQ(dynamo_folded(*DynamoProfiles(attribution).of(0)),
            "step (job.py:10);Block.f (job.py:20);g (job.py:30);Block.f (job.py:20) 2000\n"
            "step (job.py:10);Block.f (job.py:20) 3000\n"
            "step (job.py:10) 4000\n");
}

TEST_F(DynamoOutput, TableIsShortNarrowAndSafeToPrint) {
  tracing.compile("0/0", 0, root);
  std::vector<CodeId> codes;
  for (int i = 0; i < 30; ++i) {
    std::string name = i % 3 == 0 ? "evil\x1b[31m\n" : std::string(300, 'x') + "λ";
    codes.push_back(fake.code(Code{.filename = fake.string("/tmp/" + std::string(200, 'd') + name),
                                   .name = fake.string(name),
                                   .qualname = fake.string(name),
                                   .first_line = i + 2'000'000'000}));
  }
  for (CodeId caller : codes) {
    tracing.enter(caller);
    for (CodeId code : codes) tracing.call(code, 1);
    tracing.leave();
  }
  tracing.done();
  std::vector<std::string> list = lines(table());
  EXPECT_EQ(list.size(), 4u + 20 + 19 * 4 + 1);
  EXPECT_EQ(list[list.size() - 1], "# 11 more, each less");
  for (const std::string& line : list) {
    EXPECT_LE(display_width(line), 100u) << line;
    EXPECT_EQ(escape_terminal(line), line);
  }
}

TEST_F(DynamoOutput, OneLineWhenItIsNotKnown) {
  tracing.compile("0/0", 0, root);
  tracing.done();
  EXPECT_EQ(table(), "#\n# User functions Dynamo traced: not known: needs hardware watchpoints\n");
}

TEST_F(DynamoOutput, OneLineWhenNothingWasSeen) {
  trace();
  fake.pass_ms(1);
  tracing.compile("1/0", 0, root);
  fake.pass_ms(1);
  tracing.done();
  EXPECT_EQ(table(1), "#\n# User functions Dynamo traced: no inlined call was seen to its end\n");
}

TEST_F(DynamoOutput, NothingOfABackward) {
  tracing.open_compile("0/0", root, "entire_backward_compile");
  fake.pass_ms(3);
  tracing.close_compile();
  Attribution attribution(fake);
  ASSERT_EQ(attribution.compiles().at(0).kind, CompileKind::kBackward);
  EXPECT_EQ(table(), "");
}

TEST_F(DynamoOutput, MissingDataIsReported) {
  tracing.compile("0/0", 0, root);
  tracing.call(g, 1);
  tracing.enter(f);
  fake.pass_ms(1);
  tracing.watch_end();
  std::vector<std::string> list = lines(table());
  ASSERT_GE(list.size(), 2u);
  EXPECT_EQ(list[1], "# User functions Dynamo traced: 1 call (1 primitive) of 1 function");
  EXPECT_EQ(list[list.size() - 2],
            "# Tracing was not seen from begin to end: calls may be missing.");
  EXPECT_EQ(list[list.size() - 1], "# Not counted: 1 call whose end was not seen.");
}

}  // namespace
}  // namespace dynprof
