#include "user/generated/confirm_generated.h"

#include <fmt/format.h>

#include <map>
#include <utility>

namespace dynprof {
namespace {

bool same_but_for_the_name(const GeneratedFile& a, const GeneratedFile& b) {
  return a.trace_id == b.trace_id && a.kind == b.kind && a.direction == b.direction &&
         a.origin == b.origin && a.truncated == b.truncated && a.problem == b.problem &&
         a.function == b.function && a.calls == b.calls && a.content == b.content;
}

}  // namespace

GeneratedCode confirm_generated(const GeneratedCode& first, GeneratedCode second) {
  std::multimap<std::string_view, const GeneratedFile*> by_content;
  for (const GeneratedFile& file : first.files) by_content.emplace(file.content, &file);
  // Each file of the first look confirms one.
  auto confirmed = [&](const GeneratedFile& file) {
    auto [begin, end] = by_content.equal_range(file.content);
    for (auto at = begin; at != end; ++at) {
      if (!same_but_for_the_name(*at->second, file)) continue;
      by_content.erase(at);
      return true;
    }
    return false;
  };
  std::size_t changed =
      std::erase_if(second.files, [&](const GeneratedFile& file) { return !confirmed(file); });
  if (changed != 0) {
    second.missing.push_back(fmt::format("{} files that differed between two readings", changed));
  }
  return second;
}

}  // namespace dynprof
