// Everything printed goes through here. A reader that is gone, a full disk or a closed descriptor is a
// Result to act on: never a signal, an exception or an abort.
#pragma once

#include <string_view>

#include "symbolizer/base/result.h"

namespace dynprof {

// Call it first in main(). SIGPIPE is ignored, and of 0, 1 and 2 those that are closed are occupied: else
// the next file opened would get that number, and what is printed would go into it. Writing to such a
// descriptor fails as it does to a closed one, and a command started by us finds it closed.
void prepare_standard_streams();

// All of it to stdout, or an error that says why not.
Result<void> print_out(std::string_view text);

// To stderr. Text that cannot be written is dropped: there is no place to report it.
void print_err(std::string_view text);

// False: stderr cannot be written now, for example a terminal stopped with Control-S.
bool stderr_is_ready();

}  // namespace dynprof
