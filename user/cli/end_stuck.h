// For the StuckWatch of commands that record nothing.
#pragma once

#include <string>

namespace dynprof {

// Prints why, and ends the program: a thread of it waits in the kernel and cannot be freed.
[[noreturn]] void end_stuck(const std::string& sentence);

}  // namespace dynprof
