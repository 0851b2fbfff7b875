// Python versions as one number, in the order of versions: 3.11 is python_version(3, 11).
#pragma once

#include <cstdint>

namespace dynprof {

constexpr std::uint16_t python_version(int major, int minor) {
  return static_cast<std::uint16_t>(major << 8 | minor);
}
constexpr int python_major(std::uint16_t version) { return version >> 8; }
constexpr int python_minor(std::uint16_t version) { return version & 0xff; }

}  // namespace dynprof
