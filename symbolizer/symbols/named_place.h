// A place in source code with its names, as DWARF has it: what a recording's SourcePlace is made
// from.
#pragma once

#include <cstdint>
#include <string>

namespace dynprof {

struct NamedPlace {
  std::string function;  // demangled, "": none
  std::string file;
  std::uint32_t line = 0;      // 0: not known
  std::uint32_t declared = 0;  // of the function, 0: not known
  bool operator==(const NamedPlace&) const = default;
};

}  // namespace dynprof
