// The word that a misspelt one was probably meant to be.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dynprof {

// The candidate with fewest single-letter edits; "" where each takes three or more.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace dynprof
