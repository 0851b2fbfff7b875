#include <fmt/format.h>

#include "symbolizer/base/text.h"
#include "symbolizer/report/sections.h"

namespace dynprof {

std::string cut(std::string_view text, std::size_t width, bool keep_tail) {
  // Escaping grows text at most tenfold, and a name may have megabytes: only what can show.
  std::size_t enough = width * 4 + 4;
  if (text.size() > enough * 2) {
    text = keep_tail ? text.substr(text.size() - enough * 2) : text.substr(0, enough * 2);
  }
  return truncate_columns(escape_terminal(text), width, keep_tail);
}

std::string cell(std::string_view text, std::size_t width, bool keep_tail) {
  std::string out = cut(text, width, keep_tail);
  std::size_t used = display_width(out);
  if (used < width) out.append(width - used, ' ');
  return out;
}

std::string one_line(std::string_view text) {
  std::string out;
  for (char c : text.substr(0, 100'000)) {
    bool space = c == ' ' || c == '\n' || c == '\t' || c == '\r';
    if (!space) {
      out += c;
    } else if (!out.empty() && out.back() != ' ') {
      out += ' ';
    }
  }
  if (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

void append_item(std::string& out, std::string_view title, std::string_view text,
                 std::size_t most) {
  constexpr std::size_t kTitle = 14;
  const std::string first = "  " + cell(title, kTitle) + ' ';
  append_wrapped(out, first, std::string(display_width(first), ' '), text, most);
}

void append_wrapped(std::string& out, std::string_view first, std::string_view rest_indent,
                    std::string_view text, std::size_t most) {
  std::string rest = escape_terminal(one_line(text));
  std::string indent(first);
  for (std::size_t line = 1; !rest.empty(); ++line) {
    const std::size_t width = kReportColumns - display_width(indent);
    // Byte positions are at least as many as columns: the last space that surely fits.
    std::size_t space = display_width(rest) <= width ? rest.size() : rest.rfind(' ', width);
    bool last = line == most || space == std::string::npos || space == 0;
    out += indent + (last ? truncate_columns(rest, width) : rest.substr(0, space)) + '\n';
    if (last || space >= rest.size()) return;
    rest.erase(0, space + 1);
    indent = rest_indent;
  }
}

void append_comment(std::string& out, std::string_view text) {
  constexpr std::size_t kWidth = kReportColumns - 2;
  std::string rest = escape_terminal(text);
  bool first = true;
  while (!rest.empty()) {
    std::size_t width = first ? kWidth : kWidth - 2;
    out += first ? "# " : "#   ";
    first = false;
    if (display_width(rest) <= width) {
      out += rest + '\n';
      return;
    }
    // Byte positions are at least as many as columns: the last space that surely fits.
    std::size_t space = rest.rfind(' ', width);
    if (space == std::string::npos || space == 0) {
      std::string part = truncate_columns(rest, width);
      out += part + '\n';
      return;  // one word longer than a line
    }
    out += rest.substr(0, space) + '\n';
    rest.erase(0, space + 1);
  }
  if (first) out += "#\n";
}

std::string grouped(std::uint64_t number) {
  std::string digits = std::to_string(number);
  for (std::size_t at = digits.size(); at > 3;) {
    at -= 3;
    digits.insert(at, 1, ',');
  }
  return digits;
}

double share_percent(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0
                    : 100 * static_cast<double>(std::min(part, whole)) / static_cast<double>(whole);
}

std::string percent(std::uint64_t part, std::uint64_t whole) {
  if (whole == 0) return "-";
  return fmt::format("{:.2f}%", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

}  // namespace dynprof
