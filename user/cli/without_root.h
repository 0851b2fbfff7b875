// The part of `record` and `export` that makes files from a recording: done as the user behind sudo, or
// for a root without one in a child process that is the user nobody.
#pragma once

#include <functional>
#include <string>

#include "symbolizer/base/result.h"
#include "user/cli/output_directory.h"
#include "user/cli/terminal.h"
#include "user/privileges/leave_root.h"

namespace dynprof {

// Runs `work`, which makes files in `directory`, and returns its exit status. The directory of a plain
// root belongs to the user nobody meanwhile; it and all in it are root's again afterwards. Call it with
// one thread only; the process may be another user from then on.
Result<int> write_without_root(const OutputDirectory& directory, Terminal& terminal,
                               const std::function<int()>& work);

// Runs `work` with a file that a plain root has made, and takes the file away unless it returns 0.
Result<int> write_file_without_root(const std::string& path, Keep keep,
                                    const std::function<int(int file)>& work);

}  // namespace dynprof
