// Writing to a descriptor until everything is written.
#pragma once

#include <string_view>

namespace dynprof {

// False: errno says why; 0: the descriptor took nothing.
bool write_all(int fd, std::string_view bytes);

}  // namespace dynprof
