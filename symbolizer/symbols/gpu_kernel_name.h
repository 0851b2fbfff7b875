// A kernel's name as it is shown.
#pragma once

#include <string>
#include <string_view>

namespace dynprof {

// Demangled, and cut.
std::string gpu_kernel_name(std::string_view mangled);

}  // namespace dynprof
