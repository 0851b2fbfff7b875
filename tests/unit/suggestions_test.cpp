// Each rule for a suggestion fires on its evidence, and none without.
#include "symbolizer/report/suggestions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>

namespace dynprof {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;

Findings recompiled(std::vector<std::string> reasons) {
  Findings findings;
  Recompiles group;
  group.place = "Block.forward model.py:7";
  group.compiles.assign(reasons.size(), 0);
  group.reasons = std::move(reasons);
  group.cost_ns = 4 * kSecond;
  findings.recompiles.push_back(std::move(group));
  return findings;
}

Findings broke(std::string reason) {
  Findings findings;
  findings.breaks.push_back({.file = "/home/me/model.py",
                             .line = 12,
                             .reason = reason.substr(0, reason.find('\n')),
                             .text = reason,
                             .count = 2});
  return findings;
}

Findings numbers(const std::function<void(Findings&)>& edit) {
  Findings findings;
  edit(findings);
  return findings;
}

void spend(Findings& findings, Phase phase, std::uint64_t ns) { findings.groups.add(phase, ns); }

// Reasons as torch 2.13 writes them, and 2.6 where it differs.
std::map<std::string, Findings> evidence() {
  return {
      {"one-dimension",
       recompiled({"0/0: tensor 'x' size mismatch at index 1. expected 32, actual 48",
                   "0/1: tensor 'x' size mismatch at index 1. expected 48, actual 64\n"
                   "0/0: tensor 'x' size mismatch at index 1. expected 32, actual 64"})},
      {"several-dimensions",
       recompiled({"0/0: tensor 'x' size mismatch at index 1. expected 32, actual 48",
                   "0/1: tensor 'y' size mismatch at index 0. expected 4, actual 8"})},
      {"rank", recompiled({"0/0: tensor 'x' rank mismatch. expected 1, actual 2"})},
      {"dtype", recompiled({"0/0: tensor 'x' dtype mismatch. expected Float, actual Double"})},
      {"stride", recompiled({"0/0: tensor 'x' stride mismatch at index 0. expected 8, actual 1"})},
      {"requires-grad",
       recompiled({"0/0: tensor 'x' requires_grad mismatch. expected requires_grad=1"})},
      {"dispatch-keys",
       recompiled({"0/0: tensor 'x' dispatch key set mismatch. expected DispatchKeySet(CPU, "
                   "AutogradCPU), actual DispatchKeySet(CPU)"})},
      {"device", recompiled({"0/0: Tensor device index mismatch. Expected device index to be 0"})},
      {"global-state", recompiled({"0/0: GLOBAL_STATE changed: num_threads "})},
      {"grad-mode", recompiled({"0/0: ___check_grad_mode grad_mode"})},
      {"module-integer",
       recompiled({"0/0: self.n == 1 (HINT: torch.compile considers integer attributes of the "
                   "nn.Module to be static. ... torch._dynamo.config."
                   "allow_unspec_int_on_nn_module = True)"})},
      {"identity", recompiled({"0/0: ___check_obj_id(f, 140000000)"})},
      {"length", recompiled({"0/0: len(xs) == 2"})},
      {"constant", recompiled({"0/0: mode == 'train'"})},
      {"graph-break-call", broke("Call to `torch._dynamo.graph_break()`\n  Explanation: ...")},
      {"print",
       broke("Failed to trace builtin operator\n  Explanation: Dynamo does not know how to "
             "trace builtin operator `print` with argument types ['str']")},
      {"print-2.6", broke("call_function BuiltinVariable(print) [ConstantVariable(str)] {}")},
      {"logger", broke("logging.Logger method not supported for non-export cases\n  Explan ...")},
      {"item", broke("Unsupported Tensor.item() call with capture_scalar_outputs=False\n  Ex ...")},
      {"dynamic-output", broke("Dynamic shape operator\n  Explanation: Operator `aten.nonzero...")},
      {"branch", broke("Data-dependent branching\n  Explanation: Detected data-dependent ...")},
      {"branch-2.6", broke("generic_jump TensorVariable()")},
      {"disabled", broke("Skip calling `torch.compiler.disable()`d function\n  Explanation: ...")},
      {"skipped", broke("Attempted to call function marked as skipped\n  Explanation: ...")},
      {"context-manager", broke("Unsupported context manager\n  Explanation: Dynamo ...")},
      {"recompile-limit", numbers([](Findings& findings) {
         findings = recompiled({});
         findings.recompiles[0].limit = "Unsupported: Dynamo recompile limit exceeded";
       })},
      {"cold-cache", numbers([](Findings& findings) {
         findings.caches_known = true;
         findings.caches = {0, 3, 0, 2};
         spend(findings, Phase::kKernelCompile, 5 * kSecond);
       })},
      {"no-cpu-free", numbers([](Findings& findings) {
         findings.scheduled_ns = 10 * kSecond;
         findings.runnable_ns = 2 * kSecond;
       })},
      {"autotuning", numbers([](Findings& findings) {
         spend(findings, Phase::kAutotune, 3 * kSecond);
         spend(findings, Phase::kDynamo, 5 * kSecond);
       })},
      {"compile-lock", numbers([](Findings& findings) {
         findings.lock_waits = {{101, 2 * kSecond}, {102, kSecond}};
       })},
      {"triton-kernels", numbers([](Findings& findings) {
         findings.triton_kernels = 2;
         findings.triton_ns = kSecond;
         findings.triton_first = "add_kernel at serve.py:42";
       })},
  };
}

TEST(Suggestions, EachRuleFiresOnItsEvidence) {
  const std::map<std::string, Findings> known = evidence();
  for (const SuggestionRule& rule : suggestion_rules()) {
    SCOPED_TRACE(rule.name);
    auto found = known.find(std::string(rule.name));
    ASSERT_NE(found, known.end()) << "no evidence in this test";
    const std::vector<Suggestion> suggestions = suggest(found->second);
    ASSERT_EQ(suggestions.size(), 1u);
    EXPECT_EQ(suggestions[0].rule, rule.name);
    EXPECT_FALSE(suggestions[0].change.empty());
    EXPECT_FALSE(suggestions[0].evidence.empty());
  }
  EXPECT_EQ(known.size(), suggestion_rules().size());
}

TEST(Suggestions, NoneWithoutEvidence) {
  EXPECT_TRUE(suggest(Findings{}).empty());
  EXPECT_TRUE(suggest(recompiled({"0/0: of a torch to come"})).empty());
  EXPECT_TRUE(suggest(broke("of a torch to come")).empty());
}

TEST(Suggestions, TheLimitsOfNumbers) {
  auto quiet = [](const std::function<void(Findings&)>& edit) {
    EXPECT_TRUE(suggest(numbers(edit)).empty());
  };
  // A hit: the cache was not cold.
  quiet([](Findings& findings) {
    findings.caches_known = true;
    findings.caches = {1, 3, 0, 2};
    spend(findings, Phase::kKernelCompile, 5 * kSecond);
  });
  // Nothing is known of caches; or less than a second went into what they keep.
  quiet([](Findings& findings) { spend(findings, Phase::kKernelCompile, 5 * kSecond); });
  quiet([](Findings& findings) {
    findings.caches_known = true;
    findings.caches = {0, 3, 0, 2};
    spend(findings, Phase::kKernelCompile, kSecond / 2);
  });
  quiet([](Findings& findings) {
    findings.scheduled_ns = 10 * kSecond;
    findings.runnable_ns = kSecond / 2;
  });
  quiet([](Findings& findings) {
    spend(findings, Phase::kAutotune, kSecond);
    spend(findings, Phase::kDynamo, 9 * kSecond);
  });
  quiet([](Findings& findings) { findings.lock_waits = {{101, kSecond / 100}}; });
}

TEST(Suggestions, NameTheDimensionAndTheEvidence) {
  const auto one = suggest(evidence().at("one-dimension"));
  EXPECT_EQ(one[0].change, "mark_dynamic(x, 1) or dynamic=True");
  EXPECT_EQ(one[0].evidence, "model.py:7 recompiled 2 times, 4.00 s");
  EXPECT_EQ(one[0].cost_ns, 4 * kSecond);
  EXPECT_EQ(suggest(evidence().at("item"))[0].evidence, "2 graph breaks at model.py:12");
  EXPECT_EQ(suggest(evidence().at("compile-lock"))[0].evidence,
            "thread 101 waited 2.00 s for the compile lock, 1 more thread 1.00 s");
}

TEST(Suggestions, AReasonHasOneRuleAndTheMostCostlyComesFirst) {
  Findings findings = recompiled({"0/0: tensor 'x' rank mismatch. expected 1, actual 2",
                                  "0/1: tensor 'x' dtype mismatch. expected Float, actual Double",
                                  "0/2: tensor 'x' dtype mismatch. expected Float, actual Half"});
  const auto both = suggest(findings);
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[0].rule, "dtype");
  EXPECT_EQ(both[1].rule, "rank");
  EXPECT_GT(both[0].cost_ns, both[1].cost_ns);
}

TEST(Suggestions, IntendedBreaksNeedNone) {
  Findings findings = broke("generic_jump TensorVariable()");
  findings.breaks[0].intended = true;
  EXPECT_TRUE(suggest(findings).empty());
}

TEST(SizeMismatches, AreReadAsTorchWritesThem) {
  SizeMismatch found;
  EXPECT_TRUE(find_size_mismatch(
      "0/0: tensor 'L['x']' size mismatch at index 12. expected 4, actual 8", found));
  EXPECT_EQ(found.tensor, "L['x']");
  EXPECT_EQ(found.dimension, 12u);
  EXPECT_EQ(found.expected, "4");
  EXPECT_EQ(found.actual, "8");
  for (const char* text :
       {"", "tensor 'x' size mismatch at index ", "tensor 'x' size mismatch at index 1",
        "tensor 'x' size mismatch at index 1. expected , actual 8",
        "tensor 'x' size mismatch at index 99999. expected 4, actual 8",
        "size mismatch at index 1. expected 4, actual 8",
        "tensor 'x' size mismatch at index 1. expected 4"}) {
    EXPECT_FALSE(find_size_mismatch(text, found)) << text;
  }
}

}  // namespace
}  // namespace dynprof
