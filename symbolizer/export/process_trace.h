// Child processes in a chrome trace: a row for each, a slice for each program it ran, and arrows from the
// compile that it was for and back.
#pragma once

#include "symbolizer/export/trace_file.h"

namespace dynprof {

std::map<std::int32_t, TraceShared::ChildRow> child_process_rows(const ProcessTree& tree);
// How many are not drawn.
std::size_t child_processes_left_out(const ProcessTree& tree);
// Names of the processes, before the first slice.
void write_process_rows(TraceShared& shared, TraceFile& file);
void write_process_slices(TraceShared& shared, TraceFile& file);

}  // namespace dynprof
