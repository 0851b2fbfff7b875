#include "symbolizer/export/process_trace.h"

#include <algorithm>
#include <map>
#include <string>

#include "symbolizer/attribution/process_tree.h"
#include "symbolizer/export/display.h"
#include "symbolizer/export/trace_row_numbers.h"

namespace dynprof {
namespace {

// Processes drawn; a storm of short-lived ones would hide the rest.
constexpr std::size_t kMaxDrawn = 500;
// Behind the targets, whatever their pids: Linux gives out none above 4,194,304.
constexpr std::int64_t kChildSort = 4'200'000;

// Those drawn, by their begin: of compiles first, then the longest.
std::vector<ProcessIndex> drawn(const ProcessTree& tree) {
  std::vector<ProcessIndex> order;
  for (ProcessIndex i = 0; i < tree.all().size(); ++i) order.push_back(i);
  if (order.size() > kMaxDrawn) {
    std::stable_sort(order.begin(), order.end(), [&](ProcessIndex a, ProcessIndex b) {
      const ChildProcess& x = tree.all()[a];
      const ChildProcess& y = tree.all()[b];
      if ((x.compile != kNoCompile) != (y.compile != kNoCompile)) return x.compile != kNoCompile;
      return x.end_ns - x.begin_ns > y.end_ns - y.begin_ns;
    });
    order.resize(kMaxDrawn);
    std::sort(order.begin(), order.end());
  }
  return order;
}

}  // namespace

std::map<std::int32_t, TraceShared::ChildRow> child_process_rows(const ProcessTree& tree) {
  // A number used again is one row for the viewer: it has its last name.
  std::map<std::int32_t, TraceShared::ChildRow> rows;
  std::int64_t sort = kChildSort;
  for (ProcessIndex i : drawn(tree)) {
    const ChildProcess& child = tree.all()[i];
    rows[child.pid] = {cap_text(tree.title(child)), sort++};
  }
  return rows;
}

std::size_t child_processes_left_out(const ProcessTree& tree) {
  return tree.all().size() - std::min(tree.all().size(), kMaxDrawn);
}

void write_process_rows(TraceShared& shared, TraceFile& file) {
  for (const auto& [pid, row] : shared.child_rows) file.child_process(pid, kProgramRowBase + pid);
}

void write_process_slices(TraceShared& shared, TraceFile& file) {
  const ProcessTree& tree = shared.processes;
  const Attribution& attribution = shared.attribution;
  JsonWriter& json = file.json();
  std::uint64_t arrow = 1;
  std::map<std::int32_t, std::uint64_t> free_from;  // by pid: numbers are used again
  for (ProcessIndex i : drawn(tree)) {
    const ChildProcess& child = tree.all()[i];
    const std::int64_t row = kProgramRowBase + child.pid;
    std::uint64_t first = 0, last = 0;
    for (const ProcessImage& image : child.images) {
      const std::uint64_t begin = std::max({image.begin_ns, free_from[child.pid], shared.base_ns});
      if (image.end_ns <= begin) continue;
      if (!file.slice_begin("process", child.pid, row, begin, image.end_ns)) continue;
      json.field("name", cap_text(tree.title(child, image)));
      json.key("args");
      json.begin_object();
      json.field("parent", child.parent_pid);
      json.field("joined_by", join_rule_text(child.rule));
      if (child.compile != kNoCompile)
        json.field("trace_id", attribution.compiles()[child.compile].id.text());
      json.field("cpu_us", child.cpu_ns / 1000);
      std::string arguments;
      for (const std::string& argument : tree.arguments(image, 512))
        arguments += (arguments.empty() ? "" : " ") + argument;
      json.field("argv", cap_text(arguments));
      json.end_object();
      json.end_object();
      if (first == 0) first = begin;
      last = image.end_ns;
      free_from[child.pid] = image.end_ns;
    }
    // What a child of a child is waited for by is that child.
    if (child.compile == kNoCompile || first == 0 || child.rule == JoinRule::kParent) continue;
    const Compile& compile = attribution.compiles()[child.compile];
    if (compile.thread == kNoThread) continue;
    const TraceRow& from = shared.rows[shared.row_of_thread[compile.thread]];
    if (first >= compile.last_ns || first < std::max(compile.first_ns, shared.base_ns)) continue;
    file.flow('s', "process", arrow, from.pid, from.spans_tid(), first);
    file.flow('f', "process", arrow, child.pid, row, first);
    ++arrow;
    if (!child.ended || last > compile.last_ns) continue;
    file.flow('s', "process", arrow, child.pid, row, last - 1);
    file.flow('f', "process", arrow, from.pid, from.spans_tid(), last - 1);
    ++arrow;
  }
}

}  // namespace dynprof
