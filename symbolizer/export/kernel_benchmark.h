// A Python program beside the generated code, which times one kernel of a wrapper of Inductor's. Inductor itself writes
// such a program for each kernel where TORCHINDUCTOR_BENCHMARK_KERNEL was set before the compile.
#pragma once

#include <string_view>

namespace dynprof {

// Needs a wrapper with get_args() (torch 2.13 and later write it). It is for the user to run: nothing here does.
std::string_view kernel_benchmark();

}  // namespace dynprof
