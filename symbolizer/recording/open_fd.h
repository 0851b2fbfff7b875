// Recording::open for a file that is open already.
#pragma once

#include <memory>
#include <string>

#include "symbolizer/base/result.h"
#include "symbolizer/base/unique_fd.h"
#include "symbolizer/recording/reader.h"

namespace dynprof::recording {

Result<std::unique_ptr<Recording>> open_fd(UniqueFd file, const std::string& name);

}  // namespace dynprof::recording
