// From an instruction to a line, by CPython's own line tables: PEP 626 pairs on 3.10, the location
// table on 3.11 and later. Pure functions, safe on any bytes. docs/concepts/python-stacks.md, "Lines".
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace dynprof {

// Bytes of a table that are read; a generated function of 20,000 kernel launches stays below.
// What lies beyond has no line.
inline constexpr std::size_t kMaxLineTableBytes = std::size_t{1} << 20;

// A run of code units [begin, end) on one line; line 0: CPython says "no line" (None), or line 0
// (the first instruction of a module since 3.11), which no file has.
struct LineRange {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  std::int32_t line = 0;
  bool operator==(const LineRange&) const = default;
};

// `python` is major << 8 | minor; below 3.10 the list is empty. Damaged tables end the list early;
// never reads outside `table`. The runs are ascending, touch each other, start at unit 0, and
// neighbours differ in their line.
std::vector<LineRange> decode_line_table(std::uint16_t python, std::string_view table,
                                         std::int32_t first_line);

// The line of code unit `unit` (2 bytes each). -1 (a frame that has not begun) is the first line.
// 0: no line, as co_lines() says None. One pass that stops at the unit.
std::int32_t line_of_unit(std::uint16_t python, std::string_view table, std::int32_t first_line,
                          std::int32_t unit);

// The same answer by binary search in what decode_line_table gave: for many units of one table.
std::int32_t line_of_unit(const std::vector<LineRange>& ranges, std::int32_t first_line,
                          std::int32_t unit);

}  // namespace dynprof
