// Any text as /proc/PID/maps: a process chooses the paths in it. What is parsed must be one mapping per
// line with its path as it stood there, and what is made of the paths must end.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "symbolizer/base/result.h"
#include "symbolizer/base/text.h"
#include "user/target/process.h"
#include "user/target/python_image.h"

using namespace dynprof;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  std::vector<Mapping> mappings;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    auto mapping = parse_mapping(line);
    if (!mapping) continue;
    DYNPROF_CHECK(mapping->path.size() <= line.size());
    DYNPROF_CHECK(!mapping->is_file() || mapping->path[0] == '/');
    DYNPROF_CHECK(mapping->same_file(*mapping));
    // Four bytes may become one, a newline; every other byte stays.
    DYNPROF_CHECK(static_cast<std::size_t>(std::count(mapping->path.begin(), mapping->path.end(),
                                                      '\n')) <= line.size() / 4);
    const std::string shown = escape_terminal(mapping->path);
    DYNPROF_CHECK(std::none_of(shown.begin(), shown.end(), [](char c) {
      return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
    }));
    mappings.push_back(std::move(*mapping));
  }
  const std::uint16_t version =
      version_from_paths(mappings, mappings.empty() ? std::string() : mappings[0].path);
  DYNPROF_CHECK(version == 0 || version >> 8 == 2 || version >> 8 == 3);
  return 0;
}
