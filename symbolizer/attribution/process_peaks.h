// The most resident memory that processes had, from the recording's MemoryPeak rows.
#pragma once

#include <vector>

#include "symbolizer/attribution/process_tree.h"

namespace dynprof {

// Fills in ChildProcess::peak_bytes. Returns the peaks of the processes that are no children: the targets, one
// for each pid, the last row of it.
std::vector<ProcessPeak> add_memory_peaks(const Tables& tables,
                                          std::vector<ChildProcess>& children);

}  // namespace dynprof
