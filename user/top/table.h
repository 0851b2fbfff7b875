// Rows of text in columns that together fit a width: where it is too small for all columns, the least important
// ones are left out, and the widest are cut. Cells may hold anything; what comes out is escaped.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace dynprof {

struct TopColumn {
  std::string title;
  std::size_t least = 4;  // columns; with less the column is left out (never the first)
  std::size_t most = 40;
  int priority = 0;        // the lowest are kept
  bool right = false;      // aligned to the right
  bool keep_tail = false;  // of a text that is too long the end is shown
};

struct TopTable {
  std::vector<TopColumn> columns;
  std::vector<std::vector<std::string>> rows;  // as many cells as there are columns
};

// The title line, then one line for each row, none wider than `width`.
std::vector<std::string> table_lines(const TopTable& table, std::size_t width);

// `text` escaped and cut to `width` columns.
std::string fit(std::string_view text, std::size_t width, bool keep_tail = false);
// `text`, which may contain names, escaped and broken at spaces into lines of at most `width` columns, at most
// `most` of them; the last one ends in "…" where there would be more.
std::vector<std::string> wrapped(std::string_view text, std::size_t width, std::size_t most);

}  // namespace dynprof
