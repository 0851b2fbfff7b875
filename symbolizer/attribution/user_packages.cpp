#include "symbolizer/attribution/user_packages.h"

#include <algorithm>

namespace dynprof {

bool is_in_package(std::string_view file, std::span<const std::string> packages) {
  return std::any_of(packages.begin(), packages.end(), [&](const std::string& package) {
    if (package.empty()) return false;
    std::string path = "/" + package;
    std::replace(path.begin(), path.end(), '.', '/');
    return file.ends_with(path + ".py") || file.find(path + "/") != std::string_view::npos;
  });
}

}  // namespace dynprof
