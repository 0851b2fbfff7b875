// Where functions of a file lie, for probes. The kernel takes a probe as an offset in a file; libbpf
// would find it by a name as well, but it maps the file to do so and divides by what the file says,
// and the file is the target's: truncated at that moment, or with an entry size of 0, it would crash this
// program.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "symbolizer/base/result.h"

namespace dynprof {

struct FunctionPlace {
  std::uint64_t offset = 0;  // in the file
  std::uint64_t size = 0;    // in bytes; 0: the file does not say
};

// One answer per name. `fd` is an open regular file and stays open; the error is without its name.
Result<std::vector<std::optional<FunctionPlace>>> find_functions(
    int fd, std::span<const std::string_view> names);

// The path by which the kernel finds the very file that is open here, whatever its own path leads to.
std::string path_of_open_file(int fd);

}  // namespace dynprof
