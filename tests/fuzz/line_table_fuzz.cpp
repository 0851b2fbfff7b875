// libFuzzer entry for the line-table decoder: the first bytes choose the version, the first line
// and a unit, the rest is the table. Aborts when a promise of line_table.h is broken.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "symbolizer/base/result.h"
#include "symbolizer/python/line_table.h"
#include "symbolizer/python/python_version.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  struct Choice {
    std::uint8_t minor = 0;
    std::int32_t first_line = 0;
    std::int32_t unit = 0;
  } choice;
  constexpr std::size_t kHead = 9;
  if (size < kHead) return 0;
  choice.minor = data[0] % 8;
  std::memcpy(&choice.first_line, data + 1, 4);
  std::memcpy(&choice.unit, data + 5, 4);
  const auto python = dynprof::python_version(3, 8 + choice.minor);
  const std::string_view table(reinterpret_cast<const char*>(data) + kHead, size - kHead);

  const std::vector<dynprof::LineRange> ranges =
      dynprof::decode_line_table(python, table, choice.first_line);
  std::uint32_t end = 0;
  std::int32_t last_line = -1;
  for (const dynprof::LineRange& range : ranges) {
    DYNPROF_CHECK(range.begin == end && range.begin < range.end);
    DYNPROF_CHECK(range.line >= 0 && range.line != last_line);
    end = range.end;
    last_line = range.line;
  }
  const auto inside =
      static_cast<std::int32_t>(end == 0 ? 0 : static_cast<std::uint32_t>(choice.unit) % end);
  for (std::int32_t unit : {choice.unit, inside, static_cast<std::int32_t>(end)}) {
    DYNPROF_CHECK(dynprof::line_of_unit(python, table, choice.first_line, unit) ==
                  dynprof::line_of_unit(ranges, choice.first_line, unit));
  }
  return 0;
}
