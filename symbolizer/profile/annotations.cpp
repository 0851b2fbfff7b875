#include "symbolizer/profile/annotations.h"

#include <algorithm>

namespace dynprof {

const char* annotation_kind_text(AnnotationKind kind) {
  switch (kind) {
    case AnnotationKind::kRecordFunction:
      return "record_function";
    case AnnotationKind::kItt:
      return "ITT";
    case AnnotationKind::kNvtx:
      return "NVTX";
  }
  return "record_function";
}

bool annotation_matches(std::string_view annotation, std::string_view name) {
  if (name.ends_with('*')) return annotation.starts_with(name.substr(0, name.size() - 1));
  return annotation == name;
}

Annotations::Annotations(const Tables& tables) : tables_(tables) {
  for (const Annotation& range : tables.annotations) {
    const Thread& thread = tables.threads[range.thread];
    threads_[{thread.pid, thread.tid}].push_back(range);
  }
  for (auto& [row, ranges] : threads_) {
    std::stable_sort(ranges.begin(), ranges.end(), [](const Annotation& a, const Annotation& b) {
      return a.begin_ns != b.begin_ns ? a.begin_ns < b.begin_ns : a.end_ns > b.end_ns;
    });
    std::vector<std::size_t>& around = around_[row];
    std::size_t open = 0;  // 1 + number of the innermost that goes on
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      while (open != 0 && ranges[open - 1].end_ns <= ranges[i].begin_ns) open = around[open - 1];
      around.push_back(open);
      open = i + 1;
    }
  }
}

void Annotations::for_each_open(ThreadId id, std::uint64_t time_ns,
                                const std::function<void(const Annotation&)>& visit) const {
  const Thread& thread = tables_.threads[id];
  const auto row = threads_.find({thread.pid, thread.tid});
  if (row == threads_.end()) return;
  const std::vector<Annotation>& ranges = row->second;
  const std::vector<std::size_t>& around = around_.at(row->first);
  auto at = static_cast<std::size_t>(
      std::partition_point(ranges.begin(), ranges.end(),
                           [&](const Annotation& range) { return range.begin_ns <= time_ns; }) -
      ranges.begin());
  for (std::size_t looked = 0; at > 0 && looked < kMostOpen; at = around[at - 1], ++looked)
    if (ranges[at - 1].end_ns > time_ns) visit(ranges[at - 1]);
}

bool Annotations::is_inside(ThreadId thread, std::uint64_t time_ns, std::string_view name) const {
  bool inside = false;
  for_each_open(thread, time_ns, [&](const Annotation& range) {
    inside |= annotation_matches(tables_.strings[range.name], name);
  });
  return inside;
}

}  // namespace dynprof
