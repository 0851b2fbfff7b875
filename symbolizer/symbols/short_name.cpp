#include "symbolizer/symbols/short_name.h"

namespace dynprof {
namespace {

constexpr std::string_view kAnonymous = "(anonymous namespace)";
constexpr std::string_view kOperator = "operator";

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// Bytes of an operator's name at `at` ("operator<<", "operator()"), 0: there is none.
std::size_t operator_at(std::string_view name, std::size_t at) {
  if (!name.substr(at).starts_with(kOperator) || (at > 0 && is_word(name[at - 1]))) return 0;
  std::size_t end = at + kOperator.size();
  if (end < name.size() && is_word(name[end])) return 0;
  if (name.substr(end).starts_with("()")) return end + 2 - at;
  while (end < name.size() &&
         std::string_view("<>=-+*/%&|^!~,[]").find(name[end]) != std::string_view::npos)
    ++end;
  return end - at;
}

// One past the bracket that closes the one at `at`; npos: none does.
std::size_t behind(std::string_view name, std::size_t at) {
  std::size_t depth = 0;
  for (std::size_t i = at; i < name.size(); ++i) {
    if (const std::size_t skip = operator_at(name, i)) {
      i += skip - 1;
      continue;
    }
    const char c = name[i];
    if (c == '<' || c == '(') ++depth;
    const bool arrow = c == '>' && i > 0 && name[i - 1] == '-';
    if ((c == '>' && !arrow) || c == ')')
      if (--depth == 0) return i + 1;
  }
  return std::string_view::npos;
}

}  // namespace

std::string short_name(std::string_view name) {
  // Angle brackets of Python's "<lambda>" or of torch's "<eval_with_key>" are no templates; in names
  // of a perf map they stand behind a colon.
  if (name.size() <= kLongName || name.find("::") == std::string_view::npos)
    return std::string(name);
  std::string out;
  for (std::size_t i = 0; i < name.size();) {
    if (const std::size_t skip = operator_at(name, i)) {
      out += name.substr(i, skip);
      i += skip;
    } else if (name.substr(i).starts_with(kAnonymous)) {
      out += kAnonymous;
      i += kAnonymous.size();
    } else if ((name[i] == '<' || name[i] == '(') && i > 0 && name[i - 1] != ':') {
      const std::size_t end = behind(name, i);
      const bool empty = end == i + 2;
      const char close = name[i] == '<' ? '>' : ')';
      out += name[i];
      if (!empty) out += "…";
      if (end == std::string_view::npos) break;  // the name itself was cut
      out += close;
      i = end;
    } else {
      out += name[i++];
    }
  }
  return out;
}

}  // namespace dynprof
