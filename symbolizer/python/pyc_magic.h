// The magic numbers of .pyc files: importlib.util.MAGIC_NUMBER of 3.10.13, 3.11.7, 3.12.1, 3.13.0, 3.14.10 and
// 3.15.2. A minor version's does not change after its first release.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "symbolizer/python/python_version.h"

namespace dynprof {

inline constexpr std::array<std::pair<std::uint16_t, std::uint16_t>, 6> kPycMagic = {{
    {python_version(3, 10), 3439},
    {python_version(3, 11), 3495},
    {python_version(3, 12), 3531},
    {python_version(3, 13), 3571},
    {python_version(3, 14), 3627},
    {python_version(3, 15), 3666},
}};

// The CPython that can load it; nothing for another one than those above, and for no .pyc file.
inline std::optional<std::uint16_t> python_of_pyc(std::string_view file) {
  if (file.size() < 16 || file.substr(2, 2) != "\r\n") return std::nullopt;
  const auto magic = static_cast<std::uint16_t>(static_cast<unsigned char>(file[0]) |
                                                static_cast<unsigned char>(file[1]) << 8);
  for (const auto& [python, number] : kPycMagic) {
    if (number == magic) return python;
  }
  return std::nullopt;
}

}  // namespace dynprof
