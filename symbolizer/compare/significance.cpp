#include "symbolizer/compare/significance.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace dynprof {
namespace {

// Beyond it the normal distribution is as good.
constexpr std::uint64_t kExactSum = 2'000;

// P(X <= k) of X binomial(n, p), 0 < p < 1.
double binomial_at_most(std::uint64_t k, std::uint64_t n, double p) {
  const auto count = static_cast<double>(n);
  double sum = 0;
  for (std::uint64_t i = 0; i <= k; ++i) {
    const auto at = static_cast<double>(i);
    sum += std::exp(std::lgamma(count + 1) - std::lgamma(at + 1) - std::lgamma(count - at + 1) +
                    at * std::log(p) + (count - at) * std::log1p(-p));
  }
  return std::min(1.0, sum);
}

double normal_tail(double deviations) { return 0.5 * std::erfc(deviations / std::sqrt(2.0)); }

}  // namespace

double difference_probability(std::uint64_t a, std::uint64_t b, double exposure_a,
                              double exposure_b) {
  const std::uint64_t n = a + b;
  if (n == 0 || !(exposure_a > 0) || !(exposure_b > 0)) return 1;
  const double p = exposure_b / (exposure_a + exposure_b);
  if (!(p > 0) || !(p < 1)) return 1;
  double lower = 0, upper = 0;  // P(X <= b), P(X >= b)
  if (n <= kExactSum) {
    lower = binomial_at_most(b, n, p);
    upper = binomial_at_most(a, n, 1 - p);
  } else {
    const double mean = static_cast<double>(n) * p;
    const double deviation = std::sqrt(mean * (1 - p));
    lower = normal_tail((mean - static_cast<double>(b) - 0.5) / deviation);
    upper = normal_tail((static_cast<double>(b) - mean - 0.5) / deviation);
  }
  return std::min(1.0, 2 * std::min(lower, upper));
}

std::vector<bool> significant(const std::vector<double>& probabilities, double wrong) {
  std::vector<std::size_t> order(probabilities.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return probabilities[a] < probabilities[b]; });
  std::size_t chosen = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const double limit =
        wrong * static_cast<double>(i + 1) / static_cast<double>(probabilities.size());
    if (probabilities[order[i]] <= limit) chosen = i + 1;
  }
  std::vector<bool> result(probabilities.size(), false);
  for (std::size_t i = 0; i < chosen; ++i) result[order[i]] = true;
  return result;
}

}  // namespace dynprof
