// The files of the page that are the same for every recording, as they are in the source tree.
#pragma once

#include <string_view>

namespace dynprof {

std::string_view
page_template();  // with the lines "<!-- style -->", "<!-- data -->", "<!-- script -->"
std::string_view page_style();
std::string_view page_script();

}  // namespace dynprof
