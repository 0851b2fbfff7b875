// A recording whose native frames got names that were found after it was made.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "symbolizer/recording/reader.h"

namespace dynprof {

using FrameNames = std::vector<std::pair<FrameId, std::string>>;

// Everything else is the recording's own. Ids that are not of native or kernel frames are passed over.
std::unique_ptr<Recording> with_names(std::unique_ptr<Recording> recording, FrameNames names);

}  // namespace dynprof
