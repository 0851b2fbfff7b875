// Torch's operators in a chrome trace: a row of slices for each thread whose samples show some.
#pragma once

#include <cstdint>
#include <optional>

#include "symbolizer/export/trace_file.h"
#include "symbolizer/profile/timeline.h"

namespace dynprof {

// Names the rows of threads with operators.
void write_operator_rows(const TraceShared& shared, TraceFile& file);

// The row of one thread. As slices of stacks, from samples alone: two calls that follow each other are one slice
// where no sample shows that they are two.
class OperatorSlices {
 public:
  OperatorSlices(const TraceShared& shared, TraceFile& file, const TraceRow& row,
                 std::uint64_t period_ns);
  OperatorSlices(const OperatorSlices&) = delete;
  OperatorSlices& operator=(const OperatorSlices&) = delete;
  void add(std::uint64_t time_ns, StackId stack);
  void wait(std::uint64_t begin_ns, std::uint64_t end_ns, StackId stack, bool keeps_stack);
  void close();

 private:
  void draw(const FrameSlice& slice);

  const TraceShared& shared_;
  TraceFile& file_;
  const TraceRow& row_;
  std::optional<FrameRow> slices_;  // none: this thread has no such row
  FrameRow::Emit emit_;
};

}  // namespace dynprof
