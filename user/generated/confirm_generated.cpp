#include "user/generated/confirm_generated.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace dynprof {
namespace {

// Names and contents aside.
bool same_place(const GeneratedFile& a, const GeneratedFile& b) {
  return a.trace_id == b.trace_id && a.kind == b.kind && a.direction == b.direction &&
         a.origin == b.origin && a.truncated == b.truncated && a.problem == b.problem &&
         a.function == b.function && a.calls == b.calls;
}

std::string_view take_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

// The same guards, with the reasons that both have. Reasons are in objects that only a walk of the garbage collector's
// rings finds, and a collection meanwhile hides some of them. Nothing: they are not the same guards.
std::optional<std::string> common_guards(std::string_view a, std::string_view b) {
  constexpr std::string_view kReason = "  # ";
  std::string common;
  while (!a.empty() && !b.empty()) {
    std::string_view with = take_line(a), without = take_line(b);
    if (with.size() < without.size()) std::swap(with, without);
    if (!with.starts_with(without)) return std::nullopt;
    if (with != without && !with.substr(without.size()).starts_with(kReason)) return std::nullopt;
    common.append(without).append("\n");
  }
  if (!a.empty() || !b.empty()) return std::nullopt;
  return common;
}

}  // namespace

GeneratedCode confirm_generated(const GeneratedCode& first, GeneratedCode second) {
  std::multimap<std::string_view, const GeneratedFile*> by_content;
  for (const GeneratedFile& file : first.files) by_content.emplace(file.content, &file);
  // Each file of the first look confirms one.
  auto confirmed = [&](const GeneratedFile& file) {
    auto [begin, end] = by_content.equal_range(file.content);
    for (auto at = begin; at != end; ++at) {
      if (!same_place(*at->second, file)) continue;
      by_content.erase(at);
      return true;
    }
    return false;
  };
  auto confirmed_guards = [&](GeneratedFile& file) {
    if (file.kind != GeneratedKind::kGuards) return false;
    for (auto at = by_content.begin(); at != by_content.end(); ++at) {
      if (!same_place(*at->second, file)) continue;
      auto common = common_guards(at->second->content, file.content);
      if (!common) continue;
      file.content = *std::move(common);
      by_content.erase(at);
      return true;
    }
    return false;
  };
  // Those that are the same first, so that each of the others is compared with what is left.
  std::vector<GeneratedFile*> others;
  for (GeneratedFile& file : second.files)
    if (!confirmed(file)) others.push_back(&file);
  std::erase_if(others, [&](GeneratedFile* file) { return confirmed_guards(*file); });
  const std::size_t changed = others.size();
  std::erase_if(second.files, [&](const GeneratedFile& file) {
    return std::find(others.begin(), others.end(), &file) != others.end();
  });
  if (changed != 0) {
    second.missing.push_back(fmt::format("{} files that differed between two readings", changed));
  }
  return second;
}

}  // namespace dynprof
