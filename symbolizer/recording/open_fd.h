// Recording::open in two steps: a process that gives up its rights opens the file before, and reads it
// afterwards.
#pragma once

#include <memory>
#include <string>

#include "symbolizer/base/result.h"
#include "symbolizer/base/unique_fd.h"
#include "symbolizer/recording/reader.h"

namespace dynprof::recording {

// The bytes are not looked at. The error has a hint.
Result<UniqueFd> open_for_reading(const std::string& path);

// `inlined_shown` false: as Recording::open_as_recorded.
Result<std::unique_ptr<Recording>> open_fd(UniqueFd file, const std::string& name,
                                           bool inlined_shown = true);

}  // namespace dynprof::recording
