// Any text as a perf map (/tmp/perf-PID.map), which the target wrote. It must end in bounded memory, and a
// name is found only where a line says so.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "symbolizer/base/result.h"
#include "symbolizer/symbols/demangle.h"
#include "user/symbols/perf_map.h"

using namespace dynprof;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const PerfMap map = PerfMap::parse(text);
  DYNPROF_CHECK(map.size() <= text.size() / 6);  // "0 1 x\n"
  std::uint64_t address = 0;
  for (std::size_t i = 0; i < 16; ++i) {
    // Numbers in the text, where lines may lie, besides some at the ends of the address space.
    const std::size_t at = size == 0 ? 0 : i * (size - 1) / 15;
    address = std::strtoull(std::string(text.substr(at, 16)).c_str(), nullptr, 16);
    for (std::uint64_t one : {address, address - 1, ~address}) {
      const auto name = map.find(one);
      if (!name) continue;
      DYNPROF_CHECK(map.size() > 0);
      DYNPROF_CHECK(!name->empty() && name->size() <= kMaxSymbolBytes);
    }
  }
  return 0;
}
