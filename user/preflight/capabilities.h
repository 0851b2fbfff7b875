// The rights of this process. Checked before anything is done, so that the error names what is missing. And the
// reverse: rights that are no longer needed once the probes are attached are given up.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "symbolizer/base/result.h"

namespace dynprof {

// Bit set of effective capabilities from the text of /proc/PID/status; 0 where it is not there.
std::uint64_t effective_capabilities(const std::string& status_text);

// Of this process.
std::uint64_t own_capabilities();

// Names of those needed to record that are missing from `effective`; CAP_SYS_ADMIN is accepted for
// CAP_BPF and CAP_PERFMON, as in the kernel.
std::vector<std::string> missing_capabilities(std::uint64_t effective);

// All rights that recording needs. `command_line` is the command in the hint.
Result<void> check_may_record(const std::string& command_line);

// Both concern the calling thread and the threads it starts from then on. False if the kernel refused;
// nothing depends on it. CAP_SYS_ADMIN is kept in place of a CAP_BPF or CAP_PERFMON that is to be kept and is not held.

// Keeps only what a running recording uses: reading the target's memory and files, updating BPF
// maps, becoming another user at its end; with `keep_admin` also CAP_SYS_ADMIN, without which the
// kernel sets no uprobes.
bool drop_capabilities(bool keep_admin);

// Keeps only the rights to read a target's memory and files and, with `maps`, to update BPF maps.
bool keep_only_reading(bool maps = false);

}  // namespace dynprof
