// Two recordings beside each other: what takes more time in the second. Times of compiles are totals,
// since a compile takes what it takes however long is recorded; times outside compiles are per second
// of recording. Differences of sampled times are marked by whether the counts of samples prove them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "symbolizer/profile/analysis.h"

namespace dynprof {

// What the times of a table's rows are.
enum class CompareTimes : std::uint8_t {
  kExact,          // measured: ns
  kSampled,        // ns of CPU, from `count` samples
  kSampledPerSec,  // the same, divided by the seconds recorded
};

struct CompareRow {
  std::string name;  // the target's, not escaped
  double a_ns = 0, b_ns = 0;
  std::uint64_t a_count = 0, b_count = 0;
  double probability = 1;   // that it is chance, of sampled times
  bool significant = true;  // false: chance may have made it

  double change_ns() const { return b_ns - a_ns; }
};

struct CompareTable {
  std::string id, title, note;
  std::string count;  // what is counted: "Compiles", "Samples", "Calls"
  CompareTimes times = CompareTimes::kSampled;
  CompareRow total{};
  std::vector<CompareRow>
      rows{};  // the largest difference first, those that are proven before others
};

struct Comparison {
  // Title, the value in A and in B.
  struct Fact {
    std::string title, a, b;
  };
  std::vector<Fact> facts;
  std::vector<std::string> notes;  // what makes the two hard to compare; not escaped
  std::vector<CompareTable> tables;
};

Comparison compare(const Analysis& a, const Analysis& b);

// As text of at most 100 columns; `a` and `b` name the recordings.
std::string render_comparison(const Comparison& comparison, const std::string& a,
                              const std::string& b);

}  // namespace dynprof
