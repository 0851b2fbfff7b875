// Torch's events in, edges and graph breaks of the recording out. The target's memory holds nothing: what
// could be read of it is missing, as in a process that has just ended.
#include "user/torch/torch_watch.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tests/unit/fake_kernel.h"
#include "tests/unit/memory_recording.h"
#include "tests/unit/target_fake_memory.h"

namespace dynprof {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr pid_t kTid = 0x7ffffff5;

class TorchWatchTest : public ::testing::Test {
 protected:
  void compile(std::int32_t frame, std::int32_t compile, std::int32_t attempt = 0) {
    state_ = {};
    state_.status = DP_TORCH_READ;
    state_.autograd_id = DP_NO_VALUE;
    state_.frame_id = frame;
    state_.compile_id = compile;
    state_.attempt = attempt;
    state_.open_phases = DP_OPEN_PHASES_UNKNOWN;
  }
  bool phase(dp_phase_edge edge, const std::string& name, std::uint64_t frame,
             std::uint64_t breaks = DP_NO_BREAKS) {
    dp_phase_event event = {};
    event.header.time_ns = ++now_;
    event.header.tid = kTid;
    event.torch = state_;
    event.cpu_ns = now_ * 10;
    event.edge = static_cast<std::uint16_t>(edge);
    event.frame = frame;
    event.breaks = breaks;
    return watch.on_phase(process(), event, name);
  }
  bool begin(const std::string& name, std::uint64_t frame) {
    return phase(DP_PHASE_BEGIN, name, frame);
  }
  bool end(const std::string& name, std::uint64_t frame, std::uint64_t breaks = DP_NO_BREAKS) {
    return phase(DP_PHASE_END, name, frame, breaks);
  }
  void inline_event(bool begins, std::uint64_t frame, std::vector<std::uint64_t> callers = {}) {
    now_ += 1'000'000;  // no call is shorter than 30 us
    dp_inline_event event = {};
    event.header.time_ns = now_;
    event.header.tid = kTid;
    event.begin = begins;
    event.frame = frame;
    event.code = begins ? frame + 1 : 0;
    callers.insert(callers.begin(), {0xaaa, 0xbbb});
    std::copy(callers.begin(), callers.end(), event.callers);
    event.caller_count = static_cast<std::uint16_t>(callers.size());
    const CodeId code =
        begins ? recording_.writer().code({.first_line = static_cast<std::int32_t>(event.code)})
               : 0;
    watch.on_inline(process(), event, code);
  }
  WatchedProcess process() {
    return {objects_, python_, layout_, recording_.writer(), kernel_, threads_};
  }
  // "phase+ dynamo 1 0/0": kind, name or code, depth, the compile that torch reported then.
  std::vector<std::string> edges() {
    const Tables& tables = recording_.read();
    std::vector<std::string> texts;
    for (const SpanEdge& edge : tables.edges) {
      const char* kinds[] = {"?",       "phase+",  "phase-", "run+",  "run-",
                             "inline+", "inline-", "watch+", "watch-"};
      std::string text = kinds[static_cast<std::size_t>(edge.kind)];
      if (edge.name) text += fmt::format(" {}", tables.strings[edge.name]);
      if (edge.code) text += fmt::format(" code{:x}", tables.codes[edge.code].first_line);
      const TorchState& torch = tables.contexts[edge.context].torch;
      text += fmt::format(" {}", edge.depth);
      if (torch.status == TorchStatus::kRead)
        text += fmt::format(" {}/{}", torch.frame_id, torch.compile_id);
      texts.push_back(std::move(text));
    }
    breaks_ = tables.graph_breaks;
    return texts;
  }

  TorchWatch watch;
  std::vector<GraphBreak> breaks_;  // after edges()

 private:
  static PythonRuntime runtime() {
    PythonRuntime python;
    python.pid = kTid;
    python.layout = *measured_layout(python_version(3, 11));
    return python;
  }

  dynprof::testing::FakeMemory memory_;
  PythonRuntime python_ = runtime();
  RemoteObjects objects_{memory_, python_.layout};
  dp_torch_layout layout_ = {};
  FakeKernel kernel_;
  MemoryRecording recording_;
  ThreadIds threads_{kTid};
  dp_torch_state state_ = {};
  std::uint64_t now_ = 1000;
};

TEST_F(TorchWatchTest, PhasesNest) {
  compile(0, 0);
  EXPECT_FALSE(begin("dynamo", 0x100));
  EXPECT_FALSE(begin("entire_frame_compile", 0x200));
  EXPECT_FALSE(end("entire_frame_compile", 0x200));
  EXPECT_TRUE(end("dynamo", 0x100)) << "the compile is over";
  EXPECT_THAT(edges(), ElementsAre("phase+ dynamo 1 0/0", "phase+ entire_frame_compile 2 0/0",
                                   "phase- entire_frame_compile 2 0/0", "phase- dynamo 1 0/0"));
  EXPECT_EQ(watch.lost_edges(), 0u);
}

TEST_F(TorchWatchTest, EachEdgeHasTheCompileThatTorchReported) {
  compile(0, 0);
  begin("dynamo", 0x100);
  compile(1, 0);
  begin("dynamo", 0x200);
  end("dynamo", 0x200);
  compile(0, 0);
  end("dynamo", 0x100);
  EXPECT_THAT(edges(), ElementsAre("phase+ dynamo 1 0/0", "phase+ dynamo 2 1/0",
                                   "phase- dynamo 2 1/0", "phase- dynamo 1 0/0"));
}

TEST_F(TorchWatchTest, LostEndsAreCounted) {
  compile(0, 0);
  begin("dynamo", 0x100);
  begin("entire_frame_compile", 0x200);
  begin("gc", 0x300);
  EXPECT_TRUE(end("dynamo", 0x100));
  EXPECT_EQ(watch.lost_edges(), 2u);
  EXPECT_EQ(edges().back(), "phase- dynamo 1 0/0");
}

TEST_F(TorchWatchTest, AnEndWithoutABeginIsNotWritten) {
  compile(0, 0);
  end("dynamo", 0x100);
  EXPECT_EQ(watch.lost_edges(), 1u);
  EXPECT_THAT(edges(), IsEmpty());
}

TEST_F(TorchWatchTest, WhatIsOpenAtTheEndStaysOpen) {
  compile(0, 0);
  begin("dynamo", 0x100);
  watch.finish(process(), 5000);
  watch.finish(process(), 6000);
  EXPECT_THAT(edges(), ElementsAre("phase+ dynamo 1 0/0", "watch- 0"));
}

TEST_F(TorchWatchTest, InlinedCallsNest) {
  compile(0, 0);
  begin("dynamo", 0x100);
  begin("bytecode_tracing", 0x200);
  inline_event(true, 0x1000, {1, 0xf});
  inline_event(true, 0x2000, {2, 1, 0xf});
  inline_event(false, 0x2000);
  inline_event(false, 0x1000);
  end("bytecode_tracing", 0x200);
  end("dynamo", 0x100);
  EXPECT_THAT(edges(),
              ElementsAre("phase+ dynamo 1 0/0", "phase+ bytecode_tracing 2 0/0",
                          "inline+ code1001 1 0/0", "inline+ code2001 2 0/0", "inline- 2 0/0",
                          "inline- 1 0/0", "phase- bytecode_tracing 2 0/0", "phase- dynamo 1 0/0"));
}

TEST_F(TorchWatchTest, ACallLeftByAnExceptionEndsWithWhatIsAroundIt) {
  compile(0, 0);
  begin("dynamo", 0x100);
  begin("bytecode_tracing", 0x200);
  inline_event(true, 0x1000, {1, 0xf});
  inline_event(true, 0x2000, {2, 1, 0xf});
  inline_event(true, 0x3000, {1, 0xf});  // of the same caller as the first: both others were left
  end("bytecode_tracing", 0x200);
  end("dynamo", 0x100);
  EXPECT_THAT(edges(), ElementsAre("phase+ dynamo 1 0/0", "phase+ bytecode_tracing 2 0/0",
                                   "inline+ code1001 1 0/0", "inline+ code2001 2 0/0",
                                   "inline- raised 2 0/0", "inline- raised 1 0/0",
                                   "inline+ code3001 1 0/0", "inline- raised 1 0/0",
                                   "phase- bytecode_tracing 2 0/0", "phase- dynamo 1 0/0"));
}

TEST_F(TorchWatchTest, ACallThatBeganBeforeWeWatchedIsNone) {
  compile(0, 0);
  begin("dynamo", 0x100);
  inline_event(false, 0x1000);
  EXPECT_THAT(edges(), ElementsAre("phase+ dynamo 1 0/0"));
}

TEST_F(TorchWatchTest, InlinedCallsOfAThreadWithoutPhasesAreNotTaken) {
  inline_event(true, 0x1000, {1});
  EXPECT_THAT(edges(), IsEmpty());
}

TEST_F(TorchWatchTest, EachNewGraphBreakIsARow) {
  compile(3, 1);
  begin("dynamo", 0x100);
  end("dynamo", 0x100, 2);
  begin("dynamo", 0x100);
  end("dynamo", 0x100, 2);  // none since
  begin("dynamo", 0x100);
  end("dynamo", 0x100, 0);  // torch._dynamo.reset() empties the list
  begin("dynamo", 0x100);
  end("dynamo", 0x100, 1);
  edges();
  ASSERT_EQ(breaks_.size(), 3u);
  EXPECT_EQ(breaks_[0].reason, 0u) << "torch's list is not readable";
  EXPECT_TRUE(breaks_[0].calls.empty());
}

}  // namespace
}  // namespace dynprof
