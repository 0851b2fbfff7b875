#include "user/generated/merge_generated.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace dynprof {
namespace {

// Guards without the reasons behind them ("  # return x * k"), which not every look finds.
std::string without_reasons(std::string_view guards) {
  std::string text;
  while (!guards.empty()) {
    std::string_view line = guards.substr(0, guards.find('\n'));
    guards.remove_prefix(std::min(line.size() + 1, guards.size()));
    text += line.substr(0, line.find("  # "));
    text += '\n';
  }
  return text;
}

}  // namespace

GeneratedCode merge_generated(GeneratedCode before, GeneratedCode now,
                              const GeneratedLimits& limits) {
  std::multimap<std::string_view, std::size_t> by_content;
  std::deque<std::string> guards;
  auto compared = [&](const GeneratedFile& file) -> std::string_view {
    if (file.kind != GeneratedKind::kGuards) return file.content;
    return guards.emplace_back(without_reasons(file.content));
  };
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < now.files.size(); ++i) {
    by_content.emplace(compared(now.files[i]), i);
    bytes += now.files[i].content.size();
  }
  // The same file, as far as its compile was known.
  auto find = [&](const GeneratedFile& old) -> GeneratedFile* {
    auto [begin, end] = by_content.equal_range(compared(old));
    for (auto at = begin; at != end; ++at) {
      GeneratedFile& file = now.files[at->second];
      bool same_id = file.trace_id == old.trace_id || file.trace_id.empty() || old.trace_id.empty();
      if (file.kind == old.kind && same_id) return &file;
    }
    return nullptr;
  };
  std::vector<GeneratedFile> gone;
  for (GeneratedFile& old : before.files) {
    if (GeneratedFile* file = find(old)) {
      if (old.content.size() > file->content.size()) {  // guards with their reasons
        bytes += old.content.size() - file->content.size();
        file->content = std::move(old.content);
      }
      if (!file->trace_id.empty() || old.trace_id.empty()) continue;
      file->trace_id = old.trace_id;
      file->direction = old.direction;
      file->name = old.name;
    } else if (now.files.size() + gone.size() < limits.files &&
               bytes + old.content.size() <= limits.total_bytes) {
      bytes += old.content.size();
      gone.push_back(std::move(old));
    }
  }
  std::move(gone.begin(), gone.end(), std::back_inserter(now.files));
  return now;
}

}  // namespace dynprof
