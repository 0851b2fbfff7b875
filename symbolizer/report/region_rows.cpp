#include "symbolizer/report/region_rows.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "symbolizer/report/user_frames.h"

namespace dynprof {
namespace {

// From fewer than these a part of them is not shown.
constexpr std::uint64_t kLeastSamples = 20;

enum class Place : std::uint8_t { kNone, kBytecode, kWrapper, kGraph, kOther };

bool is_graph(const ResolvedFrame& frame) {
  return frame.generated || is_inductor_file(frame.file) ||
         frame.file.starts_with("<eval_with_key>");
}

bool is_torch(std::string_view file) { return file.find("/torch/") != std::string_view::npos; }

// Per stack: the innermost region on it, and where in the region its leaf is.
class StackPlaces {
 public:
  StackPlaces(const Tables& tables, const ResolvedFrames& frames, const std::set<CodeId>& codes) {
    at_.resize(tables.stacks.size());
    for (StackId id = 1; id < tables.stacks.size(); ++id) {
      const StackNode& node = tables.stacks[id];
      const At below = node.caller < id ? at_[node.caller] : At{};
      const Frame& frame = tables.frames[node.frame];
      const bool python = frame.kind == FrameKind::kPython;
      if (python && frame.code != 0 && codes.contains(frame.code))
        at_[id] = {frame.code, Place::kBytecode};
      else
        at_[id] = {below.code, inner(below.place, python, frames[node.frame])};
    }
  }
  CodeId code(StackId stack) const { return at_[stack].code; }
  Place place(StackId stack) const { return at_[stack].place; }

 private:
  struct At {
    CodeId code = 0;
    Place place = Place::kNone;
  };
  static Place inner(Place below, bool python, const ResolvedFrame& frame) {
    if (below == Place::kNone || below == Place::kGraph || below == Place::kOther) return below;
    if (python && is_graph(frame)) return Place::kGraph;
    // What native code the bytecode calls is part of it.
    if (!python) return below;
    return is_torch(frame.file) ? Place::kWrapper : Place::kOther;
  }

  std::vector<At> at_;
};

void add(RegionSamples& samples, Place place, const StackCount& count, double part) {
  const auto ns = static_cast<std::uint64_t>(static_cast<double>(count.ns) * part);
  samples.samples +=
      static_cast<std::uint64_t>(std::lround(static_cast<double>(count.samples) * part));
  switch (place) {
    case Place::kGraph:
      samples.graph_ns += ns;
      return;
    case Place::kWrapper:
      samples.wrapper_ns += ns;
      return;
    case Place::kOther:
      samples.other_ns += ns;
      return;
    default:
      samples.bytecode_ns += ns;
  }
}

double self_ns(const RegionStats& stats) {
  return static_cast<double>(stats.calls) * stats.self_per_run();
}

void add_samples(const Analysis& analysis, std::vector<RegionRow>& rows) {
  // Regions of one function may run equal code objects: their samples are divided by their time.
  std::map<std::pair<std::int32_t, CodeId>, std::vector<RegionRow*>> by_code;
  std::set<CodeId> codes;
  for (RegionRow& row : rows) {
    if (row.stats->code == 0) continue;
    by_code[{row.stats->pid, row.stats->code}].push_back(&row);
    codes.insert(row.stats->code);
  }
  if (codes.empty()) return;
  const Tables& tables = analysis.tables();
  const StackPlaces places(tables, analysis.attribution().frames(), codes);
  for (const StackCount& count : analysis.counts().all()) {
    if (count.compile != kNoCompile || places.code(count.stack) == 0) continue;
    const auto at = by_code.find({tables.threads[count.thread].pid, places.code(count.stack)});
    if (at == by_code.end()) continue;
    // One that was first seen when lengths were not measured any more has none: then by calls.
    const bool timed =
        std::ranges::all_of(at->second, [](const RegionRow* row) { return row->stats->timed > 0; });
    auto weight = [&](const RegionRow* row) {
      return timed ? self_ns(*row->stats) : static_cast<double>(row->stats->calls);
    };
    double sum = 0;
    for (const RegionRow* row : at->second) sum += weight(row);
    for (RegionRow* row : at->second) {
      const auto equal = static_cast<double>(at->second.size());
      add(row->samples, places.place(count.stack), count, sum > 0 ? weight(row) / sum : 1 / equal);
    }
  }
}

}  // namespace

std::string RegionRow::id() const {
  return (stats->backward ? "bw " : "") + (is_valid(stats->id) ? stats->id.text() : "-");
}

std::vector<RegionRow> region_rows(const Analysis& analysis) {
  std::vector<RegionRow> rows;
  const Tables& tables = analysis.tables();
  for (const RegionStats& stats : analysis.regions().regions()) {
    const RegionProcess& process = analysis.regions().process_of(stats);
    RegionRow row{.stats = &stats, .timed = process.timed(), .complete = process.complete};
    const Code& code = tables.codes[stats.code];
    if (stats.code != 0 && code.unreadable == Unreadable::kNo) {
      row.function = tables.strings[code.qualname];
      row.file = tables.strings[code.filename];
      row.line = code.first_line;
    }
    const auto counted_ns = static_cast<double>(process.end_ns - process.begin_ns);
    if (process.complete && counted_ns > 0 && stats.timed > 0)
      row.share = self_ns(stats) / counted_ns;
    rows.push_back(row);
  }
  add_samples(analysis, rows);
  double all_ns = 0;
  for (const StackCount& count : analysis.counts().all()) all_ns += static_cast<double>(count.ns);
  for (RegionRow& row : rows) {
    const auto own_ns = static_cast<double>(row.samples.all_ns());
    if (own_ns <= 0) continue;
    row.cpu_share = own_ns / all_ns;
    if (row.samples.samples >= kLeastSamples)
      row.outside = static_cast<double>(row.samples.outside_ns()) / own_ns;
  }
  auto most = [](const RegionRow& row) {
    return std::max(row.share.value_or(0), row.cpu_share.value_or(0));
  };
  std::stable_sort(rows.begin(), rows.end(),
                   [&](const RegionRow& a, const RegionRow& b) { return most(a) > most(b); });
  return rows;
}

}  // namespace dynprof
