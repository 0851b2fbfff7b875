// A line of guards.txt, taken apart for people: what must hold, of what, and the user's line it is for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dynprof {

struct GuardLine {
  std::string condition;  // "type(L['self']) is <class '__main__.Model'>"
  std::string source;     // "L['self']"; "": of torch's state, not of a value
  std::string reason;     // "x = block(x)  # model.py:42 in forward"
};

// Of a guard as torch writes it. What is not known passes unchanged.
GuardLine read_guard(std::string_view line);

// Of a whole file; comment lines and empty ones are left out.
std::vector<GuardLine> read_guard_file(std::string_view text, std::size_t most);

}  // namespace dynprof
