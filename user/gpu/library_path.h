// Where the library for CUDA processes lies, for messages: beside the program as it was built or unpacked, or where
// `make install` and the package put it.
#pragma once

#include <string>

namespace dynprof {

std::string gpu_library_path();

}  // namespace dynprof
