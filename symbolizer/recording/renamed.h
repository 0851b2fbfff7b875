// A recording whose native frames got names and source places that were found after it was made.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "symbolizer/recording/reader.h"
#include "symbolizer/symbols/named_place.h"

namespace dynprof {

using FrameNames = std::vector<std::pair<FrameId, std::string>>;
// As SourcePlaces: innermost first, last the function that is not inlined.
using FramePlaces = std::vector<std::pair<FrameId, std::vector<NamedPlace>>>;

// Everything else is the recording's own, which is one of Recording::open_as_recorded: the places
// of frames not given here are shown too. Ids that are not of native or kernel frames are passed
// over.
std::unique_ptr<Recording> with_names(std::unique_ptr<Recording> recording, FrameNames names,
                                      FramePlaces places = {});

}  // namespace dynprof
