// How many files we may have open. A recording of many processes has some of each open: maps, perf
// events, mapped files, probes.
#pragma once

namespace dynprof {

// As many as the hard limit permits. Call it after starting programs of others: they keep theirs.
void raise_descriptor_limit();

// The hint of errors that are EMFILE.
inline constexpr const char* kRaiseDescriptorLimit = "ulimit -n 4096";

// Nothing can be opened at the moment, by our limit or by the system's.
bool out_of_descriptors();

}  // namespace dynprof
