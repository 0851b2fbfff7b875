// What waits were about: each rule, what no rule is about, and what the report makes of it.
#include "symbolizer/attribution/wait_meaning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "symbolizer/base/text.h"
#include "symbolizer/report/report.h"
#include "tests/unit/fake_edges.h"

namespace dynprof {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr std::uint64_t kMs = 1'000'000;

class Meanings : public testing::Test {
 protected:
  FrameId frame(const WaitRule& rule) {
    const std::string function = rule.function;
    if (rule.kind == FrameKind::kNative)
      return fake.native(function.empty() ? "anything" : function, "/l/" + std::string(rule.file));
    return fake.python("/v/" + std::string(rule.file), function.empty() ? "anything" : function, 7);
  }
  FrameId user() { return fake.python("/home/me/train.py", "train", 1, 3); }
  FrameId libc() { return fake.native("read", "/lib/libc.so.6"); }
  Wait wait(StackId stack, WaitKind kind = WaitKind::kFutex) {
    Wait one{.begin_ns = fake.now(), .span_ns = 10 * kMs, .length_ns = 10 * kMs};
    one.stack = stack;
    one.kind = kind;
    return one;
  }
  WaitMeaning of(StackId stack, WaitKind kind = WaitKind::kFutex) {
    const ResolvedFrames frames(fake.tables());
    return WaitMeanings(fake.tables(), frames).of(wait(stack, kind));
  }

  FakeRecording fake;
};

TEST_F(Meanings, EachRuleDecidesAStackOfItsKind) {
  for (std::size_t i = 0; i < wait_rules().size(); ++i) {
    const WaitRule& rule = wait_rules()[i];
    // Frames that mean nothing around it, of the C library and of the kernel.
    const StackId stack = fake.stack({user(), frame(rule), libc(), fake.kernel("futex_wait")});
    const ResolvedFrames frames(fake.tables());
    const WaitMeanings meanings(fake.tables(), frames);
    EXPECT_EQ(meanings.rule_of(stack), i) << rule.file << ' ' << rule.function;
    EXPECT_EQ(meanings.of(wait(stack)), rule.meaning) << rule.file << ' ' << rule.function;
  }
}

TEST_F(Meanings, EachHasARuleAndATextOfItsOwn) {
  std::set<WaitMeaning> ruled = {WaitMeaning::kUnknown};
  for (const WaitRule& rule : wait_rules()) ruled.insert(rule.meaning);
  std::set<std::string> texts;
  for (std::size_t i = 0; i < kWaitMeanings; ++i) {
    EXPECT_TRUE(ruled.contains(static_cast<WaitMeaning>(i))) << i;
    texts.insert(wait_meaning_text(static_cast<WaitMeaning>(i)));
  }
  EXPECT_EQ(texts.size(), kWaitMeanings);
}

TEST_F(Meanings, ALockIsWaitedForOnlyWhereItIsTaken) {
  const FrameId taker =
      fake.python("/v/torch/_dynamo/convert_frame.py", "CatchErrorsWrapper.__call__", 7);
  EXPECT_EQ(of(fake.stack({user(), taker, libc()})), WaitMeaning::kCompileLock);
  // It has the lock, and waits for something else.
  const FrameId inside = fake.python("/v/torch/_dynamo/convert_frame.py", "_compile", 9);
  EXPECT_EQ(of(fake.stack({user(), taker, inside})), WaitMeaning::kUnknown);
  // Any other wait of that function is no wait for a lock.
  EXPECT_EQ(of(fake.stack({user(), taker, libc()}), WaitKind::kSleep), WaitMeaning::kUnknown);
}

TEST_F(Meanings, FilesAndFunctionsAreWhole) {
  EXPECT_EQ(of(fake.stack({fake.python("/v/my_concurrent/futures/thread.py", "_worker", 1)})),
            WaitMeaning::kUnknown);
  EXPECT_EQ(of(fake.stack({fake.python("concurrent/futures/thread.py", "_worker", 1)})),
            WaitMeaning::kIdlePool);
  EXPECT_EQ(of(fake.stack({fake.python("/v/torch/_inductor/async_compile.py", "wait", 1)})),
            WaitMeaning::kCompilePool)
      << "Python 3.10 has no qualified names";
  EXPECT_EQ(of(fake.stack({fake.python("/v/torch/_inductor/async_compile.py", "Other.wait", 1)})),
            WaitMeaning::kUnknown);
  EXPECT_EQ(of(0), WaitMeaning::kUnknown);
}

TEST_F(Meanings, AStrippedLibraryIsKnownByItsName) {
  Frame nameless{.kind = FrameKind::kNative, .object = fake.string("/usr/lib/libgomp.so.1")};
  EXPECT_EQ(of(fake.stack({user(), fake.frame(nameless), libc()})), WaitMeaning::kIdleOpenMp);
}

TEST_F(Meanings, MemoryAndDisksMeanNothingMore) {
  const StackId stack = fake.stack({fake.python("/v/torch/utils/data/dataloader.py", "f", 1)});
  EXPECT_EQ(of(stack), WaitMeaning::kDataLoader);
  for (WaitKind kind : {WaitKind::kMemory, WaitKind::kPageFault, WaitKind::kDisk,
                        WaitKind::kProcess, WaitKind::kPreempted})
    EXPECT_EQ(of(stack, kind), WaitMeaning::kUnknown);
}

// Thread 101 waits for the compile lock, process 200 for a file, and the line that loads a batch.
class LockReport : public Meanings {
 protected:
  LockReport() : main_(fake.thread(100, 100, "python")), edges_(fake, main_) {
    edges_.watch();
    edges_.compile("0/1");
    edges_.begin("dynamo");
    begin_ = fake.now();
    fake.pass_ms(100);
    FakeEdges other(fake, fake.thread(100, 101, "serving"));
    other.lock_sample(50 * kMs, 100);
    fake.pass_ms(900);
    edges_.end();
    edges_.no_compile();
    fake.edit_trailer().end_ns = fake.now();
  }
  void add(ThreadId thread, StackId stack, WaitKind kind, std::uint64_t at_ms, std::uint64_t ms) {
    Wait one = wait(stack, kind);
    one.begin_ns = begin_ + at_ms * kMs;
    one.span_ns = one.length_ns = ms * kMs;
    one.thread = thread;
    fake.edit_tables().waits.push_back(one);
  }
  std::string report() {
    Attribution attribution(fake);
    const Analysis analysis(attribution);
    return render_report(analysis, {});
  }

  ThreadId main_;
  FakeEdges edges_;
  std::uint64_t begin_ = 0;
};

TEST_F(LockReport, WhoWaitedAndWhoCompiled) {
  const FrameId lock = fake.python("/v/filelock/_api.py", "BaseFileLock.acquire", 10, 12);
  add(fake.thread(200, 200), fake.stack({lock}), WaitKind::kSleep, 100, 500);
  add(fake.thread(300, 300), fake.stack({lock}), WaitKind::kSleep, 2000, 250);
  const std::string text = report();
  EXPECT_THAT(text, HasSubstr("\n  compile lock   thread 101 (serving) waited 0.05 s for thread "
                              "100 (python), which compiled 0/1\n"));
  EXPECT_THAT(text, HasSubstr("\n  file lock      process 200 waited 0.50 s while process 100 "
                              "alone compiled\n"
                              "  file lock      process 300 waited 0.25 s; which process held it "
                              "is not known\n"));
  EXPECT_THAT(text, HasSubstr("For: file lock 0.75 s (2 times)."));
  EXPECT_THAT(text, HasSubstr("\n      0.750         2  file lock      "));
}

TEST_F(LockReport, LinesOfUserCodeHaveTheirWaits) {
  const FrameId load = fake.python("/v/torch/utils/data/dataloader.py", "_next_data", 1, 9);
  add(main_, fake.stack({user(), load}), WaitKind::kPoll, 1200, 300);
  add(main_,
      fake.stack({user(), fake.python("/usr/lib/python3.11/concurrent/futures/thread.py", "_worker",
                                      1, 2)}),
      WaitKind::kFutex, 1600, 700);  // idle
  fake.sample(main_, fake.stack({user()}));
  const std::string text = report();
  EXPECT_THAT(text, HasSubstr("\n# Overhead  In compile    Wait s  Line  "));
  EXPECT_THAT(text, HasSubstr("\n   100.00%       0.00%     0.300  /home/me/train.py:3  "));
}

TEST_F(LockReport, TheSummaryHasMeanings) {
  const FrameId pool =
      fake.python("/v/torch/_inductor/async_compile.py", "AsyncCompile.wait", 1, 9);
  add(main_, fake.stack({user(), pool}), WaitKind::kFutex, 100, 400);
  EXPECT_THAT(report(), HasSubstr("\n  Waiting        0.40 s (40 %): compile pool 0.40 s\n"));
}

TEST_F(LockReport, HostileNamesStayInTheirColumns) {
  const FrameId nasty = fake.python("/\x1b[2J\n/torch/utils/data/dataloader.py", "\xff\r\b", 1, 9);
  ThreadId thread = fake.thread(200, 200, "\x1b]0;x\x07\n");
  add(thread, fake.stack({nasty}), WaitKind::kPoll, 100, 400);
  add(fake.thread(201, 201, std::string(9000, 'w')), fake.stack({nasty}), WaitKind::kPoll, 1, 1);
  const std::string text = report();
  std::size_t at = 0;
  for (std::size_t end; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
    const std::string line = text.substr(at, end - at);
    EXPECT_LE(display_width(line), 100u) << line;
    EXPECT_EQ(escape_terminal(line), line);
  }
}

}  // namespace
}  // namespace dynprof
