// Rows of the table of torch's operators: what samples show of each, and where it was.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "symbolizer/profile/operators.h"
#include "symbolizer/report/sections.h"

namespace dynprof {

enum class OperatorPlaceKind : std::uint8_t {
  kEager,     // in no compiled code
  kRegion,    // a run of a compiled region, or of its backward
  kCompiled,  // compiled code of a region that is not known
  kCompile,   // while torch compiles: constants, tensors without data
};
const char* operator_place_text(OperatorPlaceKind kind);

struct OperatorPlace {
  OperatorPlaceKind kind = OperatorPlaceKind::kEager;
  std::string
      id;  // "0/1"; of several with equal code "0/1, 0/2"; of a compile its label; "" of others
  bool backward = false;
  bool operator==(const OperatorPlace&) const = default;
  // "eager", "0/1", "bw 0/1", "compile 0/1"
  std::string text() const;
};

struct OperatorAtPlace {
  OperatorPlace place;
  OperatorSums sums;
};
struct OperatorAtLine {
  std::string line;  // "train.py:92"; "": no user code was on the stack
  OperatorSums sums;
};
struct OperatorRow {
  const OperatorName* name = nullptr;
  OperatorSums sums;
  std::vector<OperatorAtPlace> places;  // most time first, as lines
  std::vector<OperatorAtLine> lines;
};
struct OperatorRows {
  std::vector<OperatorRow> rows;  // most own time first
  std::uint64_t samples = 0;      // in any of them
  std::uint64_t self_ns = 0;      // of CPU time
  // In none, but their native stack is cut: kernels of MKL and oneDNN have no unwind information, and what
  // called them is not known.
  std::uint64_t cut_samples = 0;
  std::uint64_t all_samples = 0;  // of the selection
  std::uint64_t all_ns = 0;
};

// The analysis must outlive them.
OperatorRows operator_rows(const Selection& selection);

}  // namespace dynprof
