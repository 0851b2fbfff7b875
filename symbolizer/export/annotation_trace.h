// Ranges that the program marks in itself, in a chrome trace: a row for each thread that has some.
#pragma once

#include "symbolizer/export/trace_file.h"

namespace dynprof {

void write_annotations(const TraceShared& shared, TraceFile& file);

}  // namespace dynprof
