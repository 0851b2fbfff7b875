// One compile as torch records it: an object of the class CompilationMetrics (torch 2.6 to 2.15), whose
// fields are found by name.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "user/history/compile_history.h"
#include "user/target/remote_values.h"

namespace dynprof {

// Nothing for an object that is not a CompilationMetrics or could not be read. Fields that could not be read are
// added to `unread_fields`.
std::optional<HistoryRow> read_row(RemoteValues& values, std::uint64_t object,
                                   std::set<std::string>& unread_fields);

// Autotuning and CUDA graphs after the compile.
bool is_runtime(const HistoryRow& row);

}  // namespace dynprof
