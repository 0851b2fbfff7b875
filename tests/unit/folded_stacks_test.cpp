#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "symbolizer/export/folded.h"
#include "tests/unit/fake_torch.h"

namespace dynprof {
namespace {

class StringSink : public ByteSink {
 public:
  void write(std::string_view bytes) override { text += bytes; }
  bool failed() const override { return false; }
  Result<void> finish() override { return {}; }
  std::string text;
};

struct Folded : testing::Test {
  FakeRecording fake;
  FakeTorch torch{fake};
  ThreadId thread = fake.thread(100, 100);

  std::string folded(const FoldedOptions& options = {}) {
    Attribution attribution(fake);
    StringSink sink;
    EXPECT_TRUE(write_folded(Analysis(attribution), options, sink));
    return sink.text;
  }
};

TEST_F(Folded, OneLinePerStack) {
  FrameId a = fake.python("/x/a.py", "A.a", 3, 5), other_line = fake.python("/x/a.py", "A.a", 3, 6);
  FrameId libc = fake.native("memcpy", "/lib/libc.so.6"), kernel = fake.kernel("read");
  fake.sample(thread, fake.stack({a, libc, kernel}), 0, 0, 3);
  fake.sample(thread, fake.stack({other_line, libc, kernel}));
  fake.sample(thread, fake.stack({a}));
  fake.sample(thread, 0, 0, kSampleNoPython, 2);
  EXPECT_EQ(folded(),
            "<no stack> 2\nA.a (a.py:5) 1\nA.a (a.py:5);memcpy;read_[k] 3\n"
            "A.a (a.py:6);memcpy;read_[k] 1\n");
  EXPECT_EQ(folded({.lines = false}),
            "<no stack> 2\nA.a (a.py:3) 1\nA.a (a.py:3);memcpy;read_[k] 4\n");
}

TEST_F(Folded, ThreadsWithTheSameStackAreOneLine) {
  ThreadId second = fake.thread(100, 101);
  fake.sample(thread, torch.running());
  fake.sample(second, torch.running());
  EXPECT_EQ(folded(), "<module> (train.py:40);train.<locals>.step (train.py:25) 2\n");
}

TEST_F(Folded, NamesCannotBreakTheFormat) {
  fake.sample(thread, fake.stack({fake.native("a;b\nc 7\x1b[0m", "/lib/x"),
                                  fake.native(std::string(5000, 'y'), "/lib/x"),
                                  fake.native("", "/lib/li;b.so")}));
  std::string text = folded();
  EXPECT_TRUE(text.starts_with("a\\x3bb\\nc 7\\x1b[0m;yyy")) << text.substr(0, 60);
  EXPECT_TRUE(text.ends_with("…;[li\\x3bb.so] 1\n")) << text.substr(text.size() - 40);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  EXPECT_EQ(std::count(text.begin(), text.end(), ';'), 2);
}

TEST_F(Folded, PerCompileAndWithItsIdAsRoot) {
  fake.sample(thread, torch.running());
  fake.sample(thread, torch.before_attempt(), torch.forward(0, 0, 1, 0x1000), 0, 2);
  fake.sample(thread, torch.before_attempt());
  std::string frames = "<module> (train.py:40);train.<locals>.step (train.py:25)";
  std::string compile = frames + ";_compile (convert_frame.py:1700)";
  EXPECT_EQ(folded({.compiles = {1}}), compile + " 2\n");
  EXPECT_EQ(folded({.compiles = {0}}), "");
  EXPECT_EQ(folded({.compile_root = true}), "[0/0_1];" + compile + " 2\n[runtime];" + frames +
                                                " 1\n[unattributed];" + compile + " 1\n");
}

}  // namespace
}  // namespace dynprof
