#include "symbolizer/export/annotation_trace.h"

#include <algorithm>
#include <string>
#include <vector>

#include "symbolizer/base/cap_text.h"
#include "symbolizer/export/trace_metadata.h"
#include "symbolizer/profile/annotations.h"

namespace dynprof {
namespace {

// Kineto's word for what record_function marks.
constexpr const char* kCategory = "user_annotation";

void write_row(const TraceShared& shared, TraceFile& file, const TraceRow& row,
               const std::vector<Annotation>& ranges) {
  const std::int64_t tid = row.annotations_tid();
  write_metadata(file.json(), "thread_name", row.pid, tid, "name",
                 "annotations (tid " + std::to_string(row.tid) + ')');
  write_metadata(file.json(), "thread_sort_index", row.pid, tid, "sort_index", row.tid);
  std::vector<std::uint64_t> ends;  // of those that are open, outermost first
  for (const Annotation& range : ranges) {
    while (!ends.empty() && ends.back() <= range.begin_ns) ends.pop_back();
    // Viewers need slices that nest: one that leaves the range around it (NVTX beside record_function) is cut.
    const std::uint64_t end_ns = ends.empty() ? range.end_ns : std::min(range.end_ns, ends.back());
    if (!file.slice_begin(kCategory, row.pid, tid, range.begin_ns, end_ns)) continue;
    ends.push_back(end_ns);
    JsonWriter& json = file.json();
    const std::string_view name = shared.tables.strings[range.name];
    json.field("name", name.empty() ? std::string("(name not read)") : cap_text(name));
    json.key("args");
    json.begin_object();
    json.field("kind", annotation_kind_text(range.kind));
    if (!range.end_seen) json.field("end", "not seen");
    if (end_ns != range.end_ns) {
      json.key("whole_ms");
      json.microseconds((range.end_ns - range.begin_ns) / 1000);
    }
    json.end_object();
    json.end_object();
  }
}

}  // namespace

void write_annotations(const TraceShared& shared, TraceFile& file) {
  if (shared.tables.annotations.empty()) return;
  const Annotations annotations(shared.tables);
  for (const TraceRow& row : shared.rows) {
    const auto ranges = annotations.threads().find({row.pid, row.tid});
    if (ranges != annotations.threads().end() && file.shows(row.pid))
      write_row(shared, file, row, ranges->second);
  }
}

}  // namespace dynprof
