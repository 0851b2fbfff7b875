// Amounts as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace dynprof {

std::string format_bytes(std::uint64_t bytes);   // "1.2 MB"
std::string format_count(std::uint64_t number);  // "1,234,567"
std::string format_seconds(double seconds);      // "3.2 s", "12 min 05 s"

}  // namespace dynprof
