#include "user/top/table.h"

#include <algorithm>
#include <numeric>

#include "symbolizer/base/text.h"

namespace dynprof {
namespace {

constexpr std::size_t kGap = 1;        // between two columns
constexpr std::size_t kMostBytes = 4;  // of a code point

std::string padded(const std::string& text, std::size_t width, bool right) {
  const std::size_t wide = display_width(text);
  const std::string spaces(width > wide ? width - wide : 0, ' ');
  return right ? spaces + text : text + spaces;
}

// Widths of the columns, 0 for those that are left out.
std::vector<std::size_t> widths(const TopTable& table, std::size_t width) {
  const std::size_t count = table.columns.size();
  std::vector<std::size_t> wanted(count), given(count, 0), order(count);
  for (std::size_t i = 0; i < count; ++i) {
    wanted[i] = display_width(table.columns[i].title);
    for (const auto& row : table.rows) {
      if (i < row.size())
        wanted[i] = std::max(wanted[i], display_width(fit(row[i], table.columns[i].most)));
    }
    wanted[i] = std::min(wanted[i], table.columns[i].most);
  }
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return table.columns[a].priority < table.columns[b].priority;
  });
  std::size_t left = width;
  for (std::size_t i : order) {
    const bool first = left == width;
    const std::size_t need = std::min(wanted[i], table.columns[i].least) + (first ? 0 : kGap);
    if (need > left && !first) continue;
    given[i] = std::min(wanted[i], table.columns[i].least);
    left -= std::min(left, need);
  }
  // What is left goes to the columns that were cut, in equal parts.
  for (bool given_any = true; given_any && left > 0;) {
    given_any = false;
    for (std::size_t i : order) {
      if (left == 0 || given[i] == 0 || given[i] == wanted[i]) continue;
      ++given[i];
      --left;
      given_any = true;
    }
  }
  return given;
}

}  // namespace

std::string fit(std::string_view text, std::size_t width, bool keep_tail) {
  const std::size_t most = kMostBytes * (width + 1);
  if (text.size() > most) text = keep_tail ? text.substr(text.size() - most) : text.substr(0, most);
  return truncate_columns(escape_terminal(text), width, keep_tail);
}

std::vector<std::string> table_lines(const TopTable& table, std::size_t width) {
  const std::vector<std::size_t> given = widths(table, width);
  auto line = [&](auto&& cell) {
    std::string out;
    for (std::size_t i = 0; i < given.size(); ++i) {
      if (given[i] == 0) continue;
      const TopColumn& column = table.columns[i];
      if (!out.empty()) out += std::string(kGap, ' ');
      out += padded(fit(cell(i), given[i], column.keep_tail), given[i], column.right);
    }
    out.erase(out.find_last_not_of(' ') + 1);
    return truncate_columns(out, width);
  };
  std::vector<std::string> lines;
  lines.push_back(line([&](std::size_t i) -> std::string_view { return table.columns[i].title; }));
  for (const auto& row : table.rows) {
    lines.push_back(line([&](std::size_t i) -> std::string_view {
      return i < row.size() ? std::string_view(row[i]) : std::string_view();
    }));
  }
  return lines;
}

std::vector<std::string> wrapped(std::string_view text, std::size_t width, std::size_t most) {
  std::vector<std::string> lines;
  std::string rest = escape_terminal(text.substr(0, kMostBytes * (width + 1) * (most + 1)));
  while (!rest.empty() && lines.size() < most && width > 0) {
    if (display_width(rest) <= width || lines.size() + 1 == most) {
      lines.push_back(truncate_columns(rest, width));
      break;
    }
    // A byte position is at least as far as the column: the last space that surely fits.
    std::size_t space = rest.rfind(' ', width);
    if (space == std::string::npos || space == 0) {  // one long word
      lines.push_back(truncate_columns(rest, width));
      space = rest.find(' ', 1);
      if (space == std::string::npos) break;
    } else {
      lines.push_back(rest.substr(0, space));
    }
    rest.erase(0, space + 1);
  }
  return lines;
}

}  // namespace dynprof
