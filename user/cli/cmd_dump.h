// The two forms of `dump`.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "user/live/dump.h"

namespace dynprof {

inline constexpr std::size_t kDumpedThreads = 300;  // in text; JSON has all of them

// Of each thread a header and its frames, leaf first; at most 100 columns.
std::string dump_text(const ProcessDump& dump);

// The header of a thread alone: what it is doing.
std::string thread_header(const ThreadDump& thread, const ProcessDump& dump);

// docs/reference/json-outputs.md has the shape.
nlohmann::ordered_json to_json(const ProcessDump& dump);

}  // namespace dynprof
