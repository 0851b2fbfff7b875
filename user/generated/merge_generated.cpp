#include "user/generated/merge_generated.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

namespace dynprof {

GeneratedCode merge_generated(GeneratedCode before, GeneratedCode now,
                              const GeneratedLimits& limits) {
  std::multimap<std::string_view, std::size_t> by_content;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < now.files.size(); ++i) {
    by_content.emplace(now.files[i].content, i);
    bytes += now.files[i].content.size();
  }
  // The same file, as far as anybody knew whose it is.
  auto find = [&](const GeneratedFile& old) -> GeneratedFile* {
    auto [begin, end] = by_content.equal_range(old.content);
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
