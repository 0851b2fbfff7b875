#include "symbolizer/export/html/timeline_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>

#include "symbolizer/attribution/exact_compiles.h"
#include "symbolizer/attribution/process_command.h"
#include "symbolizer/export/html/page.h"
#include "symbolizer/profile/annotations.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxName = 120;
constexpr std::uint32_t kMaxLanes = 24;  // of child processes, or ranges, beside each other
constexpr std::size_t kMaxRows = 100;
constexpr std::size_t kMaxDepth = 64;  // of processes that start processes
constexpr std::size_t kMaxNames = 5'000;

using Kind = TimelineSlice::Kind;

class Builder {
 public:
  Builder(TimelineData& data, const Analysis& analysis, const std::vector<CompileIndex>& compiles)
      : data_(data),
        analysis_(analysis),
        attribution_(analysis.attribution()),
        start_ns_(attribution_.recording().meta().start_ns),
        commands_(thread_commands(analysis.tables())),
        wanted_(attribution_.compiles().size(), compiles.empty()),
        whole_(compiles.empty()) {
    for (CompileIndex compile : compiles) wanted_[compile] = true;
    for (CompileIndex i = 0; i < wanted_.size(); ++i) data_.labels.push_back(attribution_.label(i));
    const std::uint64_t end_ns = std::max(attribution_.recording().trailer().end_ns, start_ns_);
    data_.length_ns = end_ns - start_ns_;
  }

  void build() {
    add_compiles();
    add_sampled_phases();
    for (auto& [row, slices] : by_row_) add_row(row, std::move(slices));
    if (whole_) {
      add_annotations();
      add_processes();
    }
  }

 private:
  std::uint32_t name(const std::string& text) {
    const auto next = static_cast<std::uint32_t>(data_.names.size());
    if (next >= kMaxNames && !names_.contains(text)) return name("(too many names)");
    auto [at, added] = names_.try_emplace(text, next);
    if (added) data_.names.push_back(text);
    return at->second;
  }

  // False: nothing of it is in the recording.
  bool place(TimelineSlice& slice, std::uint64_t begin_ns, std::uint64_t end_ns) const {
    const std::uint64_t last_ns = start_ns_ + data_.length_ns;
    slice.begin_ns = std::clamp(begin_ns, start_ns_, last_ns) - start_ns_;
    slice.end_ns = std::clamp(end_ns, start_ns_, last_ns) - start_ns_;
    return slice.begin_ns < slice.end_ns;
  }

  void add_compiles() {
    const Spans& spans = attribution_.spans();
    members_.resize(spans.threads().size());
    for (std::size_t row = 0; row < members_.size(); ++row) {
      const std::vector<PhaseSpan>& phases = spans.threads()[row].phases;
      for (SpanIndex i = 0; i < phases.size(); ++i)
        if (phases[i].root != kNoSpan) members_[row][phases[i].root].push_back(i);
    }
    for (CompileIndex i = 0; i < attribution_.compiles().size(); ++i) {
      const Compile& compile = attribution_.compiles()[i];
      if (!wanted_[i] || compile.thread == kNoThread || compile.first_ns == 0) continue;
      const std::size_t row = spans.row_of(compile.thread);
      thread_of_row_.try_emplace(row, compile.thread);
      TimelineSlice slice;
      slice.compile = i;
      slice.name = name(data_.labels[i]);
      slice.exact = compile.timing != kNoIndex;
      const std::uint64_t period_ns = attribution_.recording().meta().period_ns;
      if (place(slice, compile.first_ns, compile.first_ns + compile.wall_ns(period_ns)))
        by_row_[row].push_back(slice);
      add_phases(row, i);
    }
  }

  void add_phases(std::size_t row, CompileIndex index) {
    const ExactCompile* timing = attribution_.timing(index);
    if (timing == nullptr) return;
    const Compile& compile = attribution_.compiles()[index];
    auto members = members_[row].find(timing->root);
    if (members == members_[row].end()) return;
    for (SpanIndex i : members->second) {
      const PhaseSpan& span = attribution_.spans().threads()[row].phases[i];
      TimelineSlice slice;
      slice.kind = Kind::kPhase;
      slice.compile = index;
      slice.phase = span.phase;
      const std::string_view text = analysis_.tables().strings[span.name];
      slice.name =
          name(text.empty() ? phase_text(span.phase) : std::string(text.substr(0, kMaxName)));
      if (place(slice, std::max(span.begin_ns, compile.first_ns),
                std::min(span.end_ns, compile.last_ns)))
        by_row_[row].push_back(slice);
    }
  }

  // Of compiles that no events tell of: phases as samples show them.
  void add_sampled_phases() {
    const std::vector<Compile>& compiles = attribution_.compiles();
    const bool any = std::any_of(compiles.begin(), compiles.end(), [](const Compile& compile) {
      return compile.timing == kNoIndex && compile.samples > 0;
    });
    if (!any) return;
    const std::uint64_t period_ns = drawing_period_ns(attribution_.recording().meta());
    std::map<std::size_t, SpanRow> rows;
    auto emit_to = [&](std::size_t row) {
      return [this, row](const SpanSlice& drawn) {
        if (!drawn.is_phase || drawn.compile == kNoCompile || !wanted_[drawn.compile]) return;
        TimelineSlice slice;
        slice.kind = Kind::kPhase;
        slice.compile = drawn.compile;
        slice.phase = drawn.phase;
        slice.exact = false;
        slice.name = name(phase_text(drawn.phase));
        if (place(slice, drawn.begin_ns, drawn.end_ns)) by_row_[row].push_back(slice);
      };
    };
    attribution_.for_each([&](const AttributedSample& at) {
      const std::size_t row = attribution_.spans().row_of(at.sample.thread);
      const bool shown = at.compile != kNoCompile && compiles[at.compile].timing == kNoIndex;
      auto known = rows.find(row);
      if (known == rows.end()) {
        if (!shown) return;
        known = rows.try_emplace(row, compiles, period_ns).first;
      }
      known->second.add(at.sample.time_ns, shown ? at.compile : kNoCompile, at.phase, emit_to(row));
    });
    for (auto& [row, spans] : rows) spans.close(emit_to(row));
  }

  void add_row(std::size_t row, std::vector<TimelineSlice> slices) {
    const Thread& thread = analysis_.tables().threads[thread_of_row_.at(row)];
    TimelineRow shown{fmt::format("{}, thread {} of process {}", commands_[thread_of_row_.at(row)],
                                  thread.tid, thread.pid)};
    std::stable_sort(
        slices.begin(), slices.end(), [](const TimelineSlice& a, const TimelineSlice& b) {
          return a.begin_ns != b.begin_ns ? a.begin_ns < b.begin_ns : a.end_ns > b.end_ns;
        });
    std::vector<std::uint64_t> open;  // ends
    for (TimelineSlice& slice : slices) {
      while (!open.empty() && open.back() <= slice.begin_ns) open.pop_back();
      // Slices nest; of one that does not, the end counts.
      if (!open.empty()) slice.end_ns = std::min(slice.end_ns, open.back());
      slice.depth = static_cast<std::uint32_t>(open.size());
      shown.depth = std::max(shown.depth, slice.depth + 1);
      open.push_back(slice.end_ns);
    }
    shown.slices = std::move(slices);
    data_.rows.push_back(std::move(shown));
  }

  // In the first lane that is free.
  void add_to_lane(TimelineRow& row, std::vector<std::uint64_t>& lanes, TimelineSlice slice) {
    auto lane = std::find_if(lanes.begin(), lanes.end(),
                             [&](std::uint64_t end_ns) { return end_ns <= slice.begin_ns; });
    if (lane == lanes.end() && lanes.size() == kMaxLanes) {
      ++data_.left_out;
      return;
    }
    if (lane == lanes.end()) lane = lanes.insert(lanes.end(), 0);
    *lane = slice.end_ns;
    slice.depth = static_cast<std::uint32_t>(lane - lanes.begin());
    row.depth = std::max(row.depth, slice.depth + 1);
    row.slices.push_back(slice);
  }

  void add_annotations() {
    const Annotations annotations(analysis_.tables());
    for (const auto& [thread, ranges] : annotations.threads()) {
      TimelineRow row{
          fmt::format("annotations, thread {} of process {}", thread.second, thread.first)};
      std::vector<std::uint64_t> lanes;
      for (const Annotation& range : ranges) {
        TimelineSlice slice;
        slice.kind = Kind::kAnnotation;
        const std::string_view text = analysis_.tables().strings[range.name];
        slice.name = name(text.empty() ? "(name not read)" : std::string(text.substr(0, kMaxName)));
        slice.exact = range.end_seen;
        if (place(slice, range.begin_ns, range.end_ns)) add_to_lane(row, lanes, slice);
      }
      if (!row.slices.empty()) data_.rows.push_back(std::move(row));
    }
  }

  // All that one process started, and what those started in turn, each in the first lane that is free.
  void add_processes() {
    const ProcessTree& tree = analysis_.processes();
    std::map<std::int32_t, std::vector<const ChildProcess*>> by_root;
    for (const ChildProcess& child : tree.all()) {
      const ChildProcess* top = &child;
      for (std::size_t i = 0; i < kMaxDepth && top->parent != kNoChild; ++i)
        top = &tree.all()[top->parent];
      by_root[top->parent_pid].push_back(&child);
    }
    for (auto& [root, children] : by_root) {
      TimelineRow row{fmt::format("started by process {}", root)};
      std::stable_sort(
          children.begin(), children.end(),
          [](const ChildProcess* a, const ChildProcess* b) { return a->begin_ns < b->begin_ns; });
      std::vector<std::uint64_t> lanes;
      for (const ChildProcess* child : children) {
        TimelineSlice slice;
        slice.kind = Kind::kProcess;
        slice.compile = child->compile;
        slice.phase = child->compile == kNoCompile ? Phase::kRuntime : Phase::kKernelCompile;
        slice.name = name(tree.title(*child).substr(0, kMaxName));
        if (place(slice, child->begin_ns, child->end_ns)) add_to_lane(row, lanes, slice);
      }
      if (!row.slices.empty()) data_.rows.push_back(std::move(row));
    }
  }

  TimelineData& data_;
  const Analysis& analysis_;
  const Attribution& attribution_;
  std::uint64_t start_ns_;
  std::vector<std::string> commands_;
  std::vector<bool> wanted_;
  bool whole_;
  std::unordered_map<std::string, std::uint32_t> names_;
  std::vector<std::unordered_map<SpanIndex, std::vector<SpanIndex>>> members_;  // by row
  std::map<std::size_t, ThreadId> thread_of_row_;
  std::map<std::size_t, std::vector<TimelineSlice>> by_row_;
};

template <class Get>
void numbers(JsonWriter& json, const char* name, const std::vector<TimelineSlice>& slices,
             const Get& get) {
  json.key(name);
  json.begin_array();
  for (const TimelineSlice& slice : slices) json.number(get(slice));
  json.end_array();
}

void texts(JsonWriter& json, const char* name, const std::vector<std::string>& list) {
  json.key(name);
  json.begin_array();
  for (const std::string& text : list) json.string(page_text(text, kMaxName));
  json.end_array();
}

}  // namespace

TimelineData::TimelineData(const Analysis& analysis, const std::vector<CompileIndex>& compiles,
                           std::size_t most) {
  Builder(*this, analysis, compiles).build();
  if (rows.size() > kMaxRows) {
    for (std::size_t i = kMaxRows; i < rows.size(); ++i) left_out += rows[i].slices.size();
    rows.resize(kMaxRows);
  }
  std::vector<std::uint64_t> lengths;
  for (const TimelineRow& row : rows)
    for (const TimelineSlice& slice : row.slices) lengths.push_back(slice.end_ns - slice.begin_ns);
  if (lengths.size() <= most) return;
  auto cut = lengths.begin() + static_cast<std::ptrdiff_t>(most);
  std::nth_element(lengths.begin(), cut, lengths.end(), std::greater<>());
  const std::uint64_t least = *cut;  // of the first that is too many
  for (TimelineRow& row : rows)
    left_out += std::erase_if(row.slices, [&](const TimelineSlice& slice) {
      return slice.end_ns - slice.begin_ns <= least;
    });
}

void TimelineData::write(JsonWriter& json) const {
  json.begin_object();
  json.field("length", length_ns / 1000);
  json.field("leftOut", left_out);
  texts(json, "names", names);
  texts(json, "compiles", labels);
  std::vector<std::string> phases;
  for (int i = 0; i < static_cast<int>(Phase::kCount); ++i)
    phases.emplace_back(phase_text(static_cast<Phase>(i)));
  texts(json, "phases", phases);
  json.key("rows");
  json.begin_array();
  for (const TimelineRow& row : rows) {
    json.line_break();
    json.begin_object();
    json.key("name");
    json.string(page_text(row.name, kMaxName));
    json.field("depth", row.depth);
    numbers(json, "begin", row.slices, [](const auto& slice) { return slice.begin_ns / 1000; });
    numbers(json, "length", row.slices,
            [](const auto& slice) { return (slice.end_ns - slice.begin_ns) / 1000; });
    numbers(json, "depthOf", row.slices, [](const auto& slice) { return slice.depth; });
    numbers(json, "nameOf", row.slices, [](const auto& slice) { return slice.name; });
    numbers(json, "kindOf", row.slices,
            [](const auto& slice) { return static_cast<int>(slice.kind); });
    numbers(json, "phaseOf", row.slices,
            [](const auto& slice) { return static_cast<int>(slice.phase); });
    numbers(json, "compileOf", row.slices, [](const auto& slice) {
      return slice.compile == kNoCompile ? std::int64_t{-1} : std::int64_t{slice.compile};
    });
    numbers(json, "exactOf", row.slices, [](const auto& slice) { return slice.exact ? 1 : 0; });
    json.end_object();
  }
  json.end_array();
  json.end_object();
}

}  // namespace dynprof
