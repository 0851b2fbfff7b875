#include "symbolizer/export/guard_text.h"

#include <fmt/format.h>

#include <algorithm>

namespace dynprof {
namespace {

constexpr std::string_view kReason = "  # ";

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// How far an expression at the beginning of `text` goes: to what ends it outside of brackets and quotes.
std::size_t expression_size(std::string_view text) {
  std::size_t depth = 0;
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote != 0) {
      if (c == '\\') ++i;
      if (c == quote) quote = 0;
      continue;
    }
    if (c == '\'' || c == '"') quote = c;
    if (c == '(' || c == '[' || c == '{') ++depth;
    if (c == ')' || c == ']' || c == '}') {
      if (depth == 0) return i;
      --depth;
    }
    if (depth == 0 && (c == ',' || c == ' ')) return i;
  }
  return text.size();
}

// The first of: a local or global of the function ("L['x'].size()[0]", "G['torch']").
std::string_view find_source(std::string_view guard) {
  const std::size_t local = std::min(guard.find("L['"), guard.find("L[\""));
  const std::size_t global = std::min(guard.find("G['"), guard.find("G[\""));
  const std::size_t begin = std::min(local, global);
  if (begin == std::string_view::npos) return "";
  std::string_view rest = guard.substr(begin);
  return rest.substr(0, expression_size(rest));
}

// What stands behind ", type=": a class; else "".
std::string_view type_of(std::string_view guard) {
  constexpr std::string_view kType = ", type=";
  const std::size_t at = guard.rfind(kType);
  return at == std::string_view::npos ? "" : guard.substr(at + kType.size());
}

// The arguments of check_tensor() behind its class and its dispatch keys.
std::string tensor_condition(std::string_view guard, std::string_view source) {
  std::size_t at = guard.find(source);
  std::string_view rest = guard.substr(at + source.size());
  if (rest.ends_with(')')) rest.remove_suffix(1);
  std::string shown;
  while (!rest.empty()) {
    if (rest.front() == ',' || rest.front() == ' ') {
      rest.remove_prefix(1);
      continue;
    }
    const std::size_t size = std::max<std::size_t>(1, expression_size(rest));
    std::string_view argument = rest.substr(0, size);
    rest.remove_prefix(size);
    if (argument.starts_with("DispatchKeySet") || argument == "device=None") continue;
    shown += (shown.empty() ? "" : ", ") + std::string(argument);
  }
  return fmt::format("{} is a {}", source, shown);
}

std::string readable(std::string_view guard, std::string_view source) {
  const std::string_view type = type_of(guard);
  if (source.empty()) return std::string(guard);
  if (guard.starts_with("___check_type_id(") && !type.empty()) {
    return fmt::format("type({}) is {}", source, type);
  }
  if (guard.starts_with("___check_obj_id(")) {
    return fmt::format("{} is the same object{}{}", source, type.empty() ? "" : ", of ", type);
  }
  if (guard.starts_with("check_tensor(")) return tensor_condition(guard, source);
  for (bool negated : {true, false}) {
    const std::string_view name = negated ? "not ___dict_contains(" : "___dict_contains(";
    if (!guard.starts_with(name)) continue;
    std::string_view key = guard.substr(name.size());
    key = key.substr(0, expression_size(key));
    return fmt::format("{} {} in {}", key, negated ? "is not" : "is", source);
  }
  return std::string(guard);
}

}  // namespace

GuardLine read_guard(std::string_view line) {
  const std::size_t reason = std::min(line.find(kReason), line.size());
  const std::string_view guard = trimmed(line.substr(0, reason));
  const std::string_view source = find_source(guard);
  GuardLine found;
  found.condition = readable(guard, source);
  found.source = source;
  found.reason = trimmed(line.substr(std::min(reason + kReason.size(), line.size())));
  return found;
}

std::vector<GuardLine> read_guard_file(std::string_view text, std::size_t most) {
  std::vector<GuardLine> guards;
  while (!text.empty() && guards.size() < most) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (!line.empty() && line.front() != '#') guards.push_back(read_guard(line));
  }
  return guards;
}

}  // namespace dynprof
