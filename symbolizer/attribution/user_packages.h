// Packages that were installed but count as the user's own code (--user-code PKG).
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace dynprof {

// Whether the file belongs to one of the packages: "transformers" is ".../transformers/models/bert.py" and
// ".../transformers.py", "a.b" is below ".../a/b/". Only parts of a path as a whole count.
bool is_in_package(std::string_view file, std::span<const std::string> packages);

}  // namespace dynprof
