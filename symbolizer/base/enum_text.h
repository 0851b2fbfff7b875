// The texts of an enumeration whose values count from 0.
#pragma once

#include <cstddef>

namespace dynprof {

// `last` is the last enumerator: an enumeration that grows does not compile until its texts do. A value that is
// none, as a damaged recording may have, reads as `otherwise`.
template <auto last, std::size_t count>
constexpr const char* enum_text(const char* const (&texts)[count], decltype(last) value,
                                const char* otherwise) {
  static_assert(count == static_cast<std::size_t>(last) + 1, "one text for each enumerator");
  const auto index = static_cast<std::size_t>(value);
  return index < count ? texts[index] : otherwise;
}

}  // namespace dynprof
