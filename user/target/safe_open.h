// Opening files by names that the target chose. A name can lead to a device, whose mere opening can do
// something, to a FIFO, which blocks, to a file of /proc or /sys, whose content depends on the process that
// opens it,
// or out of the target's root. So a name is looked up below the target's root, without magic links
// and without opening (O_PATH); what was found is examined; and only then that very file is opened.
#pragma once

#include <sys/types.h>

#include <string>

#include "symbolizer/base/result.h"
#include "symbolizer/base/unique_fd.h"

namespace dynprof {

// The root directory of the process, for the functions below; invalid when it is gone.
UniqueFd open_root_of(pid_t pid);

enum class LastLink : bool { kFollow, kKeep };  // where the name itself is a symbolic link

// An O_PATH descriptor of what the name leads to; never leaves `root`, whatever links there are.
Result<UniqueFd> look_up_below(int root, const std::string& path,
                               LastLink last_link = LastLink::kFollow);
// A descriptor to read from, if this is a regular file of a file system that stores files, and that no
// other user serves (served_files.h). `pid`: the process whose file it is, 0: none's.
Result<UniqueFd> open_found(const UniqueFd& found, pid_t pid = 0);
// Both.
Result<UniqueFd> open_below(int root, const std::string& path, pid_t pid = 0);
// For a name that is then looked up with the rights of the target's user, which a file system lets in that
// keeps out root: fails where the name leads to one that another user serves.
Result<void> check_server_below(int root, const std::string& path, pid_t pid);
// The file that a link of /proc/PID leads to, which is a file by itself and no name: map_files, exe.
Result<UniqueFd> open_proc_link(const std::string& path, pid_t pid = 0);

}  // namespace dynprof
