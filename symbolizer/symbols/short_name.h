// C++ names as people can read them in a column. The full name stays in the recording, in pstats and in
// folded stacks; reports and the names of trace slices show the short one.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace dynprof {

// A name longer than this is shortened.
inline constexpr std::size_t kLongName = 60;

// "at::native::f<std::vector<int>, 3>(at::Tensor const&)" -> "at::native::f<…>(…)": what stands in the
// outermost angle brackets and, as parameters, in parentheses goes. Names of other languages, operators
// and "(anonymous namespace)" stay.
std::string short_name(std::string_view name);

}  // namespace dynprof
