// Whether two counts of samples differ by more than chance makes of them. Counts are taken as
// Poisson's: given their sum, the second is binomial, with the share that its exposure has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dynprof {

// The probability of a difference at least this unlikely, to either side, if both come from one
// rate. Exposures: what one unit of the rate would count, both positive; else 1 is returned.
double difference_probability(std::uint64_t a, std::uint64_t b, double exposure_a,
                              double exposure_b);

// Which of many probabilities are low enough that at most `wrong` of the chosen are expected to be
// chance (Benjamini and Hochberg).
std::vector<bool> significant(const std::vector<double>& probabilities, double wrong = 0.05);

}  // namespace dynprof
