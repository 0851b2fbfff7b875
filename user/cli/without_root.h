// The part of `record` and `export` that makes files from a recording: done as the user behind sudo, or
// for root without sudo in a child process that is the user `nobody`.
#pragma once

#include <functional>
#include <string>

#include "symbolizer/base/result.h"
#include "user/cli/output_directory.h"
#include "user/cli/terminal.h"
#include "user/privileges/leave_root.h"

namespace dynprof {

// Runs `work`, which makes files in `directory`, and returns its exit status. The directory of root
// without sudo belongs to the user `nobody` while it runs, and to root again afterwards. Call it with
// one thread only; the process may be another user from then on.
Result<int> write_without_root(const OutputDirectory& directory, Terminal& terminal,
                               const std::function<int()>& work);

// Runs `work` with a file that root without sudo has created, and removes the file unless it returns 0.
Result<int> write_file_without_root(const std::string& path, Keep keep,
                                    const std::function<int(int file)>& work);

}  // namespace dynprof
