#include "symbolizer/report/operator_rows.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "symbolizer/report/rows.h"
#include "symbolizer/report/user_frames.h"

namespace dynprof {
namespace {

using Place = std::uint32_t;  // index of Places::all
using Line = std::uint32_t;   // index of Lines::texts

// In which compiled code a stack is: by the files that torch made for a compile, else by the code object of a region.
class Places {
 public:
  explicit Places(const Analysis& analysis) : analysis_(analysis), all_{{}} {
    for (const GeneratedCopy& copy : analysis.attribution().generated_copies()) {
      if (is_valid(copy.id))
        of_file_.try_emplace(copy.path(), OperatorPlace{OperatorPlaceKind::kRegion, copy.id.text(),
                                                        copy.direction == "backward"});
    }
    for (const RegionStats& region : analysis.regions().regions()) {
      if (region.code == 0) continue;
      auto [at, added] = of_code_.try_emplace({region.pid, region.code});
      OperatorPlace& place = at->second;
      const std::string id = is_valid(region.id) ? region.id.text() : "-";
      if (added)
        place = {OperatorPlaceKind::kRegion, id, region.backward};
      else if (place.id.size() < kMostIds)
        place.id += ", " + id;
      codes_.insert(region.code);
    }
    look_at_stacks();
  }

  Place of(const StackCount& count) {
    if (count.compile != kNoCompile)
      return number({OperatorPlaceKind::kCompile, analysis_.attribution().label(count.compile)});
    const FrameId frame = innermost_[count.stack];
    if (frame == 0) return 0;
    const Tables& tables = analysis_.tables();
    const auto code = of_code_.find({tables.threads[count.thread].pid, tables.frames[frame].code});
    if (code != of_code_.end()) return number(code->second);
    const auto file = of_file_.find(analysis_.attribution().frames()[frame].file);
    return number(file != of_file_.end() ? file->second
                                         : OperatorPlace{OperatorPlaceKind::kCompiled, ""});
  }
  const OperatorPlace& operator[](Place place) const { return all_[place]; }

 private:
  static constexpr std::size_t kMostIds = 60;

  void look_at_stacks() {
    const Tables& tables = analysis_.tables();
    const ResolvedFrames& frames = analysis_.attribution().frames();
    std::vector<bool> compiled(frames.size(), false);
    for (FrameId id = 1; id < frames.size(); ++id) {
      if (frames[id].kind == FrameKind::kPython)
        compiled[id] = frames[id].generated || is_inductor_file(frames[id].file) ||
                       codes_.contains(tables.frames[id].code);
    }
    innermost_.resize(tables.stacks.size());
    for (StackId id = 1; id < tables.stacks.size(); ++id) {
      const StackNode& node = tables.stacks[id];
      const FrameId below = node.caller < id ? innermost_[node.caller] : 0;
      // Files that torch made for no known compile say less than the region around them.
      const bool says_more =
          compiled[node.frame] && (below == 0 || codes_.contains(tables.frames[node.frame].code) ||
                                   of_file_.contains(frames[node.frame].file));
      innermost_[id] = says_more ? node.frame : below;
    }
  }
  Place number(const OperatorPlace& place) {
    auto [at, added] = numbers_.try_emplace({place.kind, place.backward, place.id},
                                            static_cast<Place>(all_.size()));
    if (added) all_.push_back(place);
    return at->second;
  }

  const Analysis& analysis_;
  std::vector<OperatorPlace> all_;  // 0: eager
  std::map<std::tuple<OperatorPlaceKind, bool, std::string>, Place> numbers_;
  std::set<CodeId> codes_;
  std::map<std::pair<std::int32_t, CodeId>, OperatorPlace> of_code_;
  std::map<std::string, OperatorPlace, std::less<>> of_file_;
  std::vector<FrameId> innermost_;  // by stack: its innermost frame of compiled code, 0: none
};

class Lines {
 public:
  explicit Lines(const Selection& selection)
      : frames_(selection.attribution().frames()),
        innermost_(
            innermost_user_frames(selection.tables(), frames_, selection.options.user_packages)),
        texts_{""} {}
  Line of(StackId stack) {
    const FrameId frame = innermost_[stack];
    if (frame == 0) return 0;
    auto [at, added] = of_frame_.try_emplace(frame, 0);
    if (!added) return at->second;
    auto [line, is_new] =
        numbers_.try_emplace(user_line_place(frames_[frame]), static_cast<Line>(texts_.size()));
    if (is_new) texts_.push_back(line->first);
    return at->second = line->second;
  }
  const std::string& operator[](Line line) const { return texts_[line]; }

 private:
  const ResolvedFrames& frames_;
  std::vector<FrameId> innermost_;
  std::vector<std::string> texts_;
  std::unordered_map<FrameId, Line> of_frame_;
  std::unordered_map<std::string, Line> numbers_;
};

struct Seen {
  std::uint64_t ns = 0, samples = 0, wait_ns = 0;
};
using Key = std::tuple<CallId, Place, Line>;

bool wanted(const Selection& selection, CompileIndex compile, Phase phase) {
  const ReportOptions& options = selection.options;
  if (!options.compiles.empty() &&
      !std::binary_search(selection.compiles.begin(), selection.compiles.end(), compile))
    return false;
  return options.phases.empty() ||
         std::find(options.phases.begin(), options.phases.end(), phase) != options.phases.end();
}

std::uint64_t count_cut(const Selection& selection, const Operators& operators) {
  std::uint64_t cut = 0;
  selection.attribution().for_each([&](const AttributedSample& at) {
    const bool is_cut = (at.sample.flags & (kSampleNativeCut | kSampleUnmerged)) != 0;
    if (is_cut && operators.call_of(at.sample.stack) == 0 &&
        wanted(selection, at.compile, at.phase))
      ++cut;
  });
  return cut;
}

// What one operator has at each place and line.
struct Sums {
  OperatorSums all;
  std::map<Place, OperatorSums> places;
  std::map<Line, OperatorSums> lines;
  void add(Place place, Line line, const OperatorSums& more) {
    all.add(more);
    places[place].add(more);
    lines[line].add(more);
  }
};

// Adds what was seen to every operator that is open, once to each.
void add_open(const Operators& operators, const Key& key, const Seen& seen, std::vector<Sums>& sums,
              std::vector<const Key*>& last) {
  const auto [leaf, place, line] = key;
  for (CallId at = leaf; at != 0; at = operators.around(at)) {
    const OperatorId op = operators.operator_of(at);
    if (std::exchange(last[op], &key) == &key) continue;
    OperatorSums more{
        .self_ns = 0, .total_ns = seen.ns, .total_samples = seen.samples, .wait_ns = seen.wait_ns};
    if (at == leaf) {
      more.self_ns = seen.ns;
      more.self_samples = seen.samples;
    }
    sums[op].add(place, line, more);
  }
}

template <class Row>
void most_first(std::vector<Row>& rows) {
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return a.sums.total_ns + a.sums.wait_ns > b.sums.total_ns + b.sums.wait_ns;
  });
}

}  // namespace

const char* operator_place_text(OperatorPlaceKind kind) {
  switch (kind) {
    case OperatorPlaceKind::kEager:
      return "eager";
    case OperatorPlaceKind::kRegion:
      return "region";
    case OperatorPlaceKind::kCompiled:
      return "compiled";
    case OperatorPlaceKind::kCompile:
      return "compile";
  }
  return "eager";
}

std::string OperatorPlace::text() const {
  if (kind == OperatorPlaceKind::kRegion) return (backward ? "bw " : "") + id;
  return operator_place_text(kind) + (id.empty() ? "" : " " + id);
}

OperatorRows operator_rows(const Selection& selection) {
  OperatorRows table;
  table.all_samples = selection.samples;
  table.all_ns = selection.ns;
  const Operators& operators = selection.analysis.operators();
  if (operators.empty()) return table;
  Places places(selection.analysis);
  Lines lines(selection);
  std::map<Key, Seen> by_key;
  for (const StackCount& count : selection.counts) {
    const CallId call = operators.call_of(count.stack);
    if (call == 0) continue;
    Seen& seen = by_key[{call, places.of(count), lines.of(count.stack)}];
    seen.ns += count.ns;
    seen.samples += count.samples;
    table.samples += count.samples;
    table.self_ns += count.ns;
  }
  for (const StackCount& count : selection.analysis.counts().waits()) {
    const CallId call = operators.call_of(count.stack);
    if (call == 0 || !wanted(selection, count.compile, count.phase)) continue;
    by_key[{call, places.of(count), lines.of(count.stack)}].wait_ns += count.ns;
  }

  table.cut_samples = count_cut(selection, operators);

  std::vector<Sums> sums(operators.all().size());
  std::vector<const Key*> last(sums.size(), nullptr);
  for (const auto& [key, seen] : by_key) add_open(operators, key, seen, sums, last);
  for (OperatorId op = 0; op < sums.size(); ++op) {
    if (sums[op].all.total_samples == 0 && sums[op].all.wait_ns == 0) continue;
    OperatorRow& row =
        table.rows.emplace_back(OperatorRow{&operators.all()[op], sums[op].all, {}, {}});
    for (const auto& [place, of] : sums[op].places) row.places.push_back({places[place], of});
    for (const auto& [line, of] : sums[op].lines) row.lines.push_back({lines[line], of});
    most_first(row.places);
    most_first(row.lines);
  }
  std::sort(table.rows.begin(), table.rows.end(), [](const OperatorRow& a, const OperatorRow& b) {
    const auto order = [](const OperatorRow& row) {
      return std::tuple(row.sums.self_ns, row.sums.total_ns, row.sums.wait_ns);
    };
    if (order(a) != order(b)) return order(a) > order(b);
    return a.name->text() < b.name->text();
  });
  return table;
}

}  // namespace dynprof
