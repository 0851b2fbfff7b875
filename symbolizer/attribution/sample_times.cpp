#include "symbolizer/attribution/sample_times.h"

#include <algorithm>
#include <limits>
#include <optional>

namespace dynprof {
namespace {

// Further apart than this, samples in between were lost (the recording says how many), and the two
// around the gap do not stand for it. A thread that runs for moments only is hit by chance: then one
// time in e^16 is taken for lost.
constexpr double kMostPeriods = 16;
// At high rates that is a moment, and a virtual machine that its host stops for tens of milliseconds takes no samples.
constexpr double kMostNs = 100e6;

}  // namespace

SampleTimes::SampleTimes(const Recording& recording, const Spans& spans, const ThreadClocks& clocks)
    : period_ns_(recording.meta().period_ns) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint32_t>::max();
  if (clocks.empty() || period_ns_ > kMost / 4) return;
  struct Last {
    std::size_t sample = 0;
    std::optional<double> cpu_ns{};
  };
  std::vector<std::optional<Last>> rows;
  times_.reserve(static_cast<std::size_t>(recording.sample_count()));
  const double most = std::min(std::max(kMostNs, kMostPeriods * static_cast<double>(period_ns_)),
                               static_cast<double>(kMost - period_ns_));
  const auto first_half = static_cast<std::uint32_t>(period_ns_ / 2);
  const auto second_half = static_cast<std::uint32_t>(period_ns_ - first_half);
  recording.for_each_sample([&](const Sample& sample) {
    const std::size_t row = spans.row_of(sample.thread);
    if (row >= rows.size()) rows.resize(row + 1);
    const std::optional<double> cpu_ns = clocks.cpu_at(row, sample.time_ns);
    // Each gets half of what lies between two samples. Outside the first and the last, and where the
    // clock says nothing, half is half a period.
    std::uint32_t before = first_half;
    if (const std::optional<Last>& last = rows[row]; last && last->cpu_ns && cpu_ns) {
      const double between = std::max(0.0, *cpu_ns - *last->cpu_ns);
      if (between <= most) {
        before = static_cast<std::uint32_t>(between / 2);
        times_[last->sample] += before - second_half;
      }
    }
    rows[row] = Last{times_.size(), cpu_ns};
    times_.push_back(before + second_half);
  });
}

}  // namespace dynprof
