// Names of a recording's native frames from files at hand: the machine that reads a recording may have
// the debug files that the recording machine lacked, or the recording was cut before its names.
#pragma once

#include <cstddef>
#include <string>

#include "symbolizer/recording/renamed.h"

namespace dynprof {

struct FoundNames {
  FrameNames names;
  FramePlaces places;       // of frames in files with DWARF
  std::string problem;      // of reading it, "" for none
  std::size_t files = 0;    // with names
  std::size_t refused = 0;  // of another build-id, or none
};

// Looks below `directory` for each mapped file with a build-id: .build-id/xx/rest(.debug), its path, its
// base name, each also with ".debug". A file counts only when its build-id is that of the recording.
FoundNames find_names(const Recording& recording, const std::string& directory);

}  // namespace dynprof
