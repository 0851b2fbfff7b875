#include "symbolizer/report/annotation_rows.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace dynprof {

std::vector<AnnotationSums> annotation_rows(const Analysis& analysis) {
  const Tables& tables = analysis.tables();
  if (tables.annotations.empty()) return {};
  const Annotations annotations(tables);
  using Key = std::pair<AnnotationKind, StringId>;
  std::map<Key, AnnotationSums> sums;
  for (const Annotation& range : tables.annotations) {
    AnnotationSums& sum = sums[{range.kind, range.name}];
    sum.name = tables.strings[range.name];
    sum.kind = range.kind;
    ++sum.count;
    sum.open += range.end_seen ? 0 : 1;
    const std::uint64_t length_ns = range.end_ns - range.begin_ns;
    sum.total_ns += length_ns;
    sum.longest_ns = std::max(sum.longest_ns, length_ns);
  }
  std::vector<Key> seen;
  analysis.attribution().for_each([&](const AttributedSample& at) {
    seen.clear();
    annotations.for_each_open(at.sample.thread, at.sample.time_ns, [&](const Annotation& range) {
      const Key key{range.kind, range.name};
      // A range inside another one of its name: once.
      if (std::find(seen.begin(), seen.end(), key) != seen.end()) return;
      seen.push_back(key);
      AnnotationSums& sum = sums[key];
      ++sum.samples;
      sum.cpu_ns += at.cpu_ns;
      if (at.compile != kNoCompile) sum.compile_ns += at.cpu_ns;
    });
  });
  std::vector<AnnotationSums> rows;
  for (const auto& [key, sum] : sums) rows.push_back(sum);
  std::stable_sort(rows.begin(), rows.end(), [](const AnnotationSums& a, const AnnotationSums& b) {
    return a.total_ns > b.total_ns;
  });
  return rows;
}

std::vector<StackCount> counts_inside(const Analysis& analysis, std::string_view name) {
  const Annotations annotations(analysis.tables());
  std::map<std::tuple<CompileIndex, StackId, ThreadId, Phase>, StackCount> sums;
  analysis.attribution().for_each([&](const AttributedSample& at) {
    const Sample& sample = at.sample;
    if (!annotations.is_inside(sample.thread, sample.time_ns, name)) return;
    StackCount& count = sums[{at.compile, sample.stack, sample.thread, at.phase}];
    count.compile = at.compile;
    count.stack = sample.stack;
    count.thread = sample.thread;
    count.phase = at.phase;
    ++count.samples;
    count.ns += at.cpu_ns;
  });
  std::vector<StackCount> counts;
  for (const auto& [key, count] : sums) counts.push_back(count);
  return counts;
}

}  // namespace dynprof
