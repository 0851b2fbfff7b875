#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "symbolizer/attribution/torch_phases.h"

namespace dynprof {
namespace {

struct GoldenName {
  std::string name, phase;
};

std::vector<GoldenName> golden_names() {
  std::ifstream file("tests/golden/torch_phase_names.tsv");
  std::vector<GoldenName> names;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    std::istringstream fields(line);
    GoldenName one;
    std::getline(fields, one.name, '\t');
    std::getline(fields, one.phase, '\t');
    names.push_back(one);
  }
  return names;
}

TEST(TorchPhases, EveryNameOfTorchMaps) {
  std::vector<GoldenName> names = golden_names();
  ASSERT_GT(names.size(), 120u) << "run from the root of the repository";
  for (const GoldenName& one : names) {
    auto phase = find_torch_phase(one.name);
    ASSERT_TRUE(phase) << one.name;
    EXPECT_EQ(phase_text(phase->phase), one.phase) << one.name;
  }
}

TEST(TorchPhases, EveryRuleIsUsed) {
  std::vector<GoldenName> names = golden_names();
  for (const TorchPhaseRule& rule : torch_phase_rules()) {
    bool used = std::any_of(names.begin(), names.end(), [&](const GoldenName& one) {
      return one.name.find(rule.name) != std::string::npos;
    });
    EXPECT_TRUE(used) << rule.name;
  }
}

TEST(TorchPhases, OtherNamesAreUnknown) {
  for (std::string name : {"", "dynam", "dynamo ", "compile_attempt_", "compile_attempt_x",
                           "compile_attempt_-1", "compile_attempt_99999999999", "xpgo.", "a.b"}) {
    EXPECT_FALSE(find_torch_phase(name)) << name;
  }
  EXPECT_FALSE(find_torch_phase("pgo." + std::string(100'000, 'x')));
}

TEST(TorchPhases, AttemptsHaveTheirNumber) {
  EXPECT_EQ(find_torch_phase("compile_attempt_0")->attempt, 0);
  EXPECT_EQ(find_torch_phase("compile_attempt_12")->attempt, 12);
  EXPECT_EQ(find_torch_phase("compile_attempt_12")->role, PhaseRole::kAttempt);
  EXPECT_EQ(find_torch_phase("bytecode_hooks_3")->attempt, -1);
}

TEST(TorchPhases, WholeCompiles) {
  EXPECT_EQ(find_torch_phase("dynamo")->role, PhaseRole::kForward);
  EXPECT_EQ(find_torch_phase("entire_backward_compile")->role, PhaseRole::kBackward);
  EXPECT_EQ(find_torch_phase("pytorch.wait_counter.entire_backward_compile")->role,
            PhaseRole::kBackward);
  EXPECT_EQ(find_torch_phase("compiled_autograd")->role, PhaseRole::kCompiledAutograd);
  EXPECT_EQ(find_torch_phase("compile_fx_aot")->role, PhaseRole::kExport);
  EXPECT_EQ(find_torch_phase("fullgraph_capture")->role, PhaseRole::kExport);
  EXPECT_EQ(find_torch_phase("inductor_compile")->role, PhaseRole::kNone);
}

}  // namespace
}  // namespace dynprof
