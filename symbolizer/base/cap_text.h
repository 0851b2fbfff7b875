// Long text, cut.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace dynprof {

// Longer names are cut: a viewer shows a few dozen characters, a hostile target sends 10,000.
inline constexpr std::size_t kMaxDisplayBytes = 1000;

// At most `bytes` of text, cut between two UTF-8 characters and ending in "…" if cut.
std::string cap_text(std::string_view text, std::size_t bytes = kMaxDisplayBytes);

}  // namespace dynprof
