// One analysis for all outputs: a second output does not go through the samples again.
#include "symbolizer/profile/analysis.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>

#include "symbolizer/export/chrome.h"
#include "symbolizer/export/compiles_json.h"
#include "symbolizer/report/report.h"
#include "tests/unit/fake_training.h"

namespace dynprof {
namespace {

class CountedTraining : public FakeTraining {
 public:
  CountedTraining() { whole_run(); }
  void for_each_sample(const std::function<void(const Sample&)>& visit) const override {
    ++passes;
    FakeTraining::for_each_sample(visit);
  }
  mutable std::uint64_t passes = 0;
};

class NoSink final : public ByteSink {
 public:
  void write(std::string_view) override {}
  bool failed() const override { return false; }
  Result<void> finish() override { return {}; }
};

TEST(Analysis, OutputsShareWhatIsMadeFromAllSamples) {
  const CountedTraining recording;
  const Attribution attribution(recording);
  const Analysis analysis(attribution);
  EXPECT_FALSE(render_report(analysis, {}).empty());
  const std::uint64_t after_report = recording.passes;
  EXPECT_FALSE(render_report(analysis, {}).empty());
  EXPECT_FALSE(compiles_json(analysis).empty());
  for (CompileIndex i = 0; i < attribution.compiles().size(); ++i)
    EXPECT_GT(analysis.of(i).samples, 0u);
  EXPECT_EQ(recording.passes, after_report);
  // One that tells how large it will be, one that writes.
  ASSERT_TRUE(write_chrome_trace(analysis, {}, std::make_unique<NoSink>()));
  EXPECT_EQ(recording.passes, after_report + 2);
}

TEST(Analysis, NothingIsMadeBeforeItIsAskedFor) {
  const CountedTraining recording;
  const Attribution attribution(recording);
  const std::uint64_t after_attribution = recording.passes;
  const Analysis analysis(attribution);
  EXPECT_GT(analysis.functions().size(), 1u);
  EXPECT_TRUE(analysis.waits().empty());
  EXPECT_EQ(recording.passes, after_attribution);
}

}  // namespace
}  // namespace dynprof
