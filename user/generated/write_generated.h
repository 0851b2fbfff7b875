// Generated code into an output directory: DIR/generated/0_0/forward_wrapper.py.
#pragma once

#include <string>
#include <vector>

#include "symbolizer/base/result.h"
#include "user/cli/output_directory.h"
#include "user/generated/generated_file.h"

namespace dynprof {

// For "generated" of compiles.json.
struct WrittenFile {
  std::string path;  // relative to the output directory: "generated/0_0/forward_wrapper.py"
  std::string trace_id;
  std::string kind;
  std::string direction;
  std::string origin;   // hostile: escape it for where it goes
  std::string problem;  // of a file that is not as it should be, as in GeneratedFile
  bool truncated = false;
};

// Writes the files that have content, mode 0600 in directories of mode 0700 that must not exist yet.
// An error leaves the files written before it. `files` as find_generated gives them.
Result<std::vector<WrittenFile>> write_generated(const OutputDirectory& directory,
                                                 const std::vector<GeneratedFile>& files);

}  // namespace dynprof
