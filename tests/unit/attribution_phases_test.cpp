#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "symbolizer/attribution/attribution.h"
#include "symbolizer/attribution/phases.h"
#include "tests/unit/fake_torch.h"

namespace dynprof {
namespace {

struct Phases : testing::Test {
  FakeRecording fake;
  FakeTorch torch{fake};
  ThreadId thread = fake.thread(100, 100);

  std::vector<std::string> phases() {
    std::vector<std::string> list;
    Attribution(fake).for_each(
        [&](const AttributedSample& sample) { list.push_back(phase_text(sample.phase)); });
    return list;
  }
  using List = std::vector<std::string>;
};

TEST_F(Phases, TheInnermostMarkerWins) {
  ContextId context = torch.forward(0, 0, 0, 0x1000);
  fake.sample(thread, torch.tracing(), context);
  fake.sample(thread, torch.lowering(), context);
  fake.sample(thread, torch.guarding(), context);
  fake.sample(thread,
              fake.stack({torch.torch("_inductor/async_compile.py", "AsyncCompile.wait")},
                         torch.lowering()),
              context);
  fake.sample(thread, fake.stack({fake.native("memcpy", "/lib/libc.so.6")}, torch.lowering()),
              context);
  fake.sample(thread, torch.running());
  EXPECT_EQ(phases(), (List{"dynamo", "inductor", "guards", "wait", "inductor", "runtime"}));
}

TEST_F(Phases, WithoutAMarkerADefaultPerKind) {
  StackId bare = fake.stack({torch.module()});
  fake.sample(thread, bare, torch.forward(0, 0, 0, 0x1000));
  fake.sample(thread, bare, torch.backward_of(0, 0, 0, 0x1000));
  EXPECT_EQ(phases(), (List{"dynamo", "aot_autograd"}));
}

TEST_F(Phases, CompileWorkOnAThreadWithoutAnIdKeepsItsPhase) {
  StackId pool = fake.stack({torch.torch("_inductor/codecache.py", "_worker_compile_cpp")});
  StackId replay = fake.stack({torch.torch("_inductor/compile_fx.py", "cudagraphify")});
  fake.sample(thread, pool);
  fake.sample(thread, replay);
  EXPECT_EQ(phases(), (List{"kernel_compile", "runtime"}));
  Attribution attribution(fake);
  EXPECT_EQ(attribution.detached(), 1u);
  EXPECT_EQ(attribution.runtime(), 1u);
}

TEST_F(Phases, ANamesakeElsewhereIsNoMarker) {
  for (const char* file : {"/home/me/convert_frame.py", "/x/mytorch/_dynamo/convert_frame.py",
                           "/x/torch/_dynamo/convert_frame.pyc"}) {
    fake.sample(thread, fake.stack({fake.python(file, "_compile", 10)}));
  }
  fake.sample(thread, fake.stack({torch.torch("_dynamo/convert_frame.py", "Other._compile")}));
  fake.sample(thread, fake.stack({fake.native("_compile", "torch/_dynamo/convert_frame.py")}));
  EXPECT_EQ(phases(), List(5, "runtime"));
  fake.sample(thread, fake.stack({fake.python("torch/_dynamo/convert_frame.py", "_compile", 10)}));
  EXPECT_EQ(phases().back(), "unattributed") << "a relative path is still torch's";
}

TEST_F(Phases, Python310HasNoQualnames) {
  CodeId code = fake.code(Code{.filename = fake.string("/x/torch/_inductor/graph.py"),
                               .name = fake.string("compile_to_module"),
                               .qualname = fake.string("compile_to_module"),
                               .first_line = 5,
                               .python = python_version(3, 10)});
  fake.sample(thread, fake.stack({fake.python(code)}), torch.forward(0, 0, 0, 0x1000));
  EXPECT_EQ(phases(), (List{"inductor"}));
}

TEST_F(Phases, AnUnreadableCodeObjectIsNoMarker) {
  Code code =
      fake.edit_tables().codes[fake.code("/x/torch/_dynamo/convert_frame.py", "_compile", 1)];
  code.unreadable = Unreadable::kStale;
  fake.sample(thread, fake.stack({fake.python(fake.code(code))}));
  EXPECT_EQ(phases(), (List{"runtime"}));
}

TEST_F(Phases, ADamagedStackTreeEndsTheStack) {
  StackId stack = torch.tracing();
  fake.edit_tables().stacks[stack].caller = stack;  // a cycle
  fake.sample(thread, stack);
  EXPECT_EQ(phases(), (List{"unattributed"}));
}

TEST(PhaseTable, EveryRuleIsUsableAndUnique) {
  std::set<std::pair<std::string, std::string>> seen;
  for (const FrameRule& rule : frame_rules()) {
    EXPECT_NE(rule.role, FrameRole::kNone) << rule.qualname;
    EXPECT_NE(rule.phase, Phase::kUnattributed) << rule.qualname;
    EXPECT_EQ(rule.phase == Phase::kRuntime, rule.role == FrameRole::kRun) << rule.qualname;
    EXPECT_TRUE(std::string(rule.file).ends_with(".py")) << rule.file;
    EXPECT_NE(rule.file[0], '/') << rule.file;
    EXPECT_TRUE(seen.emplace(rule.file, rule.qualname).second) << rule.qualname;
  }
}

TEST(PhaseTable, EachPhaseHasItsOwnName) {
  std::set<std::string> names;
  for (int phase = 0; phase < static_cast<int>(Phase::kCount); ++phase) {
    EXPECT_TRUE(names.insert(phase_text(static_cast<Phase>(phase))).second);
  }
}

}  // namespace
}  // namespace dynprof
