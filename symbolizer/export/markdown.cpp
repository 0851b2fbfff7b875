#include "symbolizer/export/markdown.h"

#include <fmt/format.h>

#include <algorithm>

#include "symbolizer/base/text.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxLine = 2000;  // columns of a line of a block

std::size_t longest_run(std::string_view text, char of) {
  std::size_t longest = 0, run = 0;
  for (char c : text) {
    run = c == of ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  return longest;
}

}  // namespace

std::string markdown_text(std::string_view text, std::size_t most) {
  std::string out;
  for (char c : truncate_columns(escape_terminal(text), most)) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '&') {
      out += "&amp;";
    } else {
      if (std::string_view("\\`*_{}[]()#|~!").find(c) != std::string_view::npos) out += '\\';
      out += c;
    }
  }
  return out;
}

// Between two runs of backticks that the text has not; a bar would end a table's cell even there.
std::string markdown_code(std::string_view text, std::size_t most) {
  std::string shown = truncate_columns(escape_terminal(text), most);
  if (shown.empty()) return "";
  const std::string fence(longest_run(shown, '`') + 1, '`');
  const char* space = shown.front() == '`' || shown.back() == '`' ? " " : "";
  std::string code;
  for (char c : shown) {
    if (c == '|') code += '\\';
    code += c;
  }
  return fence + space + code + space + fence;
}

std::string markdown_block(std::string_view text, std::string_view language, std::size_t lines) {
  const std::string fence(std::max<std::size_t>(3, longest_run(text, '`') + 1), '`');
  std::string out = fmt::format("{}{}\n", fence, language);
  std::size_t count = 0;
  for (; !text.empty() && count < lines; ++count) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    std::size_t tabs = 0;
    while (tabs < line.size() && line[tabs] == '\t') ++tabs;
    out += std::string(tabs, '\t') + truncate_columns(escape_terminal(line.substr(tabs)), kMaxLine);
    out += '\n';
  }
  out += fence + "\n";
  const auto more = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')) +
                    (text.empty() || text.back() == '\n' ? 0 : 1);
  if (more > 0) out += fmt::format("\n{} more lines are in the file.\n", more);
  return out;
}

}  // namespace dynprof
