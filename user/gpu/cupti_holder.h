// Which other program has CUPTI in a process, for a note.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

namespace dynprof {

// "Nsight Systems", "torch.profiler, which ...". `name` is what that client calls itself, where CUPTI knows it; else
// what the process maps and who started it are looked at.
std::string cupti_holder(pid_t pid, std::string_view name);

}  // namespace dynprof
