#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "symbolizer/attribution/exact_compiles.h"
#include "symbolizer/attribution/phase_groups.h"
#include "symbolizer/attribution/process_tree.h"
#include "symbolizer/attribution/torch_history.h"
#include "symbolizer/base/text.h"
#include "symbolizer/export/html/tables.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxRows = 2'000;
constexpr std::size_t kMaxListed = 20;

double seconds(std::uint64_t ns) { return static_cast<double>(ns) * 1e-9; }

class CompileRow {
 public:
  CompileRow(const Selection& selection, CompileIndex index)
      : selection_(selection),
        attribution_(selection.attribution()),
        index_(index),
        compile_(attribution_.compiles()[index]),
        timing_(attribution_.timing(index)),
        past_(attribution_.past(index)) {}

  std::vector<PageDetail> details() const {
    std::vector<PageDetail> details;
    add(details, "Times", times());
    if (past_ != nullptr) {
      if (past_->recompile_reason) add(details, "Recompiled because", {*past_->recompile_reason});
      add(details, "Restarted because", past_->restart_reasons);
      if (past_->failed && attribution_.is_last_attempt(index_))
        add(details, "Failed", {*past_->failed});
      if (past_->cudagraph_skip_reason)
        add(details, "No CUDA graph because", {*past_->cudagraph_skip_reason});
    }
    add(details, "Graph breaks", breaks());
    add(details, "Waited for", waits());
    add(details, "User lines (from reads of the target's memory)", lines());
    add(details, "torch's own phases, without what is inside them", torch_phases());
    add(details, "Generated code", generated());
    return details;
  }

 private:
  static void add(std::vector<PageDetail>& details, const char* title,
                  std::vector<std::string> lines) {
    if (lines.empty()) return;
    if (lines.size() > kMaxListed) {
      const std::size_t more = lines.size() - kMaxListed;
      lines.resize(kMaxListed);
      lines.push_back(fmt::format("{} more", grouped(more)));
    }
    details.push_back({title, std::move(lines)});
  }

  std::vector<std::string> times() const {
    std::vector<std::string> lines;
    const std::uint64_t start_ns = attribution_.recording().meta().start_ns;
    std::string text = compile_.exact ? "exact begin and end" : "from the first to the last sample";
    if (compile_.before_attach) text = "ended before the recording began: torch's own record";
    text += fmt::format("; {}", compile_kind_text(compile_.kind));
    if (compile_.began_before) text += "; it had begun before the recording";
    if (compile_.open_at_end) text += "; it was open when the recording ended";
    if (compile_.first_ns >= start_ns && compile_.first_ns != 0)
      text += fmt::format("; at {:.3f} s", seconds(compile_.first_ns - start_ns));
    lines.push_back(std::move(text));
    lines.push_back(fmt::format("{} samples", grouped(compile_.samples)));
    if (compile_.thread != kNoThread) {
      const Thread& thread = selection_.tables().threads[compile_.thread];
      lines.push_back(fmt::format("thread {} of process {}", thread.tid, thread.pid));
    }
    if (past_ != nullptr && past_->caches) {
      const PastCaches& caches = *past_->caches;
      lines.push_back(
          fmt::format("FxGraphCache {} hits, {} misses; AOTAutogradCache {} hits, {} misses",
                      caches.fx_hits, caches.fx_misses, caches.aot_hits, caches.aot_misses));
    }
    return lines;
  }

  std::vector<std::string> breaks() const {
    std::vector<std::string> lines;
    const std::vector<PastBreak>* breaks = attribution_.graph_breaks(index_);
    if (breaks == nullptr) return lines;
    for (const PastBreak& one : *breaks) {
      const std::string place = one.file.empty() ? "" : fmt::format("{}:{}: ", one.file, one.line);
      lines.push_back(place + (one.reason.empty() ? "?" : one.reason));
    }
    return lines;
  }

  std::vector<std::string> waits() const {
    std::vector<std::string> lines;
    for (const WaitPlace& place : selection_.analysis.waits().of(index_).places) {
      if (place.ns < 1'000'000) break;
      std::string where = "(no stack)";
      if (place.has_frame) where = frame_place(attribution_.frames()[place.frame]);
      lines.push_back(fmt::format("{:.3f} s {} ({}x): {}", seconds(place.ns),
                                  wait_kind_text(place.kind), grouped(place.count), where));
    }
    return lines;
  }

  std::vector<std::string> lines() const {
    std::vector<std::string> lines;
    for (const LineTime& line : selection_.analysis.lines().of(index_)) {
      std::string text;
      for (LineUse use : kLineUses) {
        if (line.of(use) == 0) continue;
        text += fmt::format("{}{} {:.2f} s", text.empty() ? "" : ", ", line_use_text(use),
                            seconds(line.of(use)));
      }
      lines.push_back(fmt::format("{}:{} {}: {}", line.file, line.line, line.function, text));
    }
    return lines;
  }

  std::vector<std::string> torch_phases() const {
    std::vector<std::string> lines;
    if (timing_ == nullptr) return lines;
    std::vector<const TorchPhaseTime*> times;
    for (const TorchPhaseTime& time : timing_->torch_phases) times.push_back(&time);
    std::stable_sort(times.begin(), times.end(), [](const auto* a, const auto* b) {
      return a->exclusive_ns > b->exclusive_ns;
    });
    for (const TorchPhaseTime* time : times)
      lines.push_back(fmt::format("{:.3f} s  {} ({}, {}x, {:.3f} s with what is inside)",
                                  seconds(time->exclusive_ns),
                                  selection_.tables().strings[time->name], phase_text(time->phase),
                                  grouped(time->count), seconds(time->wall_ns)));
    return lines;
  }

  std::vector<std::string> generated() const {
    std::vector<std::string> lines;
    const Generated& generated = selection_.analysis.generated();
    for (std::uint32_t i : generated.of(index_)) {
      const GeneratedCopy& file = generated.files()[i];
      lines.push_back(fmt::format("{}: {}{}", file.kind, file.path(),
                                  file.truncated ? " (its beginning)" : ""));
    }
    return lines;
  }

  const Selection& selection_;
  const Attribution& attribution_;
  CompileIndex index_;
  const Compile& compile_;
  const ExactCompile* timing_;
  const PastCompile* past_;
};

std::string why(const Attribution& attribution, CompileIndex index) {
  const PastCompile* past = attribution.past(index);
  std::string text;
  if (past != nullptr && attribution.is_last_attempt(index)) {
    if (past->failed) text = "failed: " + *past->failed;
    if (text.empty() && past->recompile_reason) text = *past->recompile_reason;
  }
  const std::vector<PastBreak>* breaks = attribution.graph_breaks(index);
  if (breaks != nullptr && !breaks->empty() && attribution.is_last_attempt(index))
    text += fmt::format("{}{} graph break{}", text.empty() ? "" : "; ", breaks->size(),
                        breaks->size() == 1 ? "" : "s");
  return one_line(text);
}

GroupTimes shares_of(const Selection& selection, CompileIndex index) {
  const Compile& compile = selection.attribution().compiles()[index];
  if (compile.timing != kNoIndex || compile.samples == 0)
    return group_times(selection.attribution(), index);
  GroupTimes times;
  for (const StackCount& count : selection.analysis.counts().of(index))
    times.add(count.phase, count.ns);
  return times;
}

}  // namespace

PageTable compile_table(const Selection& selection, const FlameData& flame) {
  const Attribution& attribution = selection.attribution();
  const std::vector<Compile>& compiles = attribution.compiles();
  const std::uint64_t period_ns = attribution.recording().meta().period_ns;
  std::set<std::int32_t> pids;
  std::vector<GroupTimes> shares;
  std::array<bool, kPhaseGroups> shown{};
  for (CompileIndex i : selection.compiles) {
    pids.insert(compiles[i].pid);
    shares.push_back(shares_of(selection, i));
    for (std::size_t group = 0; group < kPhaseGroups; ++group)
      shown[group] = shown[group] || shares.back().ns[group] > 0;
  }

  PageTable table{"compiles", "Compiles"};
  table.note =
      "Wall is CPU, waiting and ready (it could have run, and no CPU was free). Shares are of wall "
      "time where begin and end are exact, else of CPU time. Open a row for the reasons.";
  table.columns = {{"Trace id"}};
  if (pids.size() > 1) table.columns.push_back({"Pid", ColumnType::kCount});
  table.columns.insert(table.columns.end(),
                       {{"Function", ColumnType::kPlace},
                        {"Wall", ColumnType::kSeconds},
                        {"CPU", ColumnType::kSeconds, "time on a CPU, from samples"},
                        {"Wait", ColumnType::kSeconds, "time off the CPU, waiting"},
                        {"Ready", ColumnType::kSeconds, "it could have run, and no CPU was free"},
                        {"Child", ColumnType::kSeconds, "CPU time of the processes it started"}});
  for (std::size_t group = 0; group < kPhaseGroups; ++group) {
    const PhaseGroupName& name = phase_group_name(static_cast<PhaseGroup>(group));
    if (shown[group]) table.columns.push_back({name.column, ColumnType::kPercent, name.words});
  }
  table.columns.push_back({"Why", ColumnType::kText, "recompile reason, graph breaks, failure"});

  for (std::size_t at = 0; at < selection.compiles.size(); ++at) {
    const CompileIndex i = selection.compiles[at];
    if (table.rows.size() == kMaxRows) {
      table.left_out = selection.compiles.size() - at;
      break;
    }
    const Compile& compile = compiles[i];
    const CompileWaits& waits = selection.analysis.waits().of(i);
    const CompiledFunction function = attribution.function(i);
    std::string place(function.qualname);
    if (function.unreadable == Unreadable::kNo && !function.file.empty())
      place += fmt::format(" {}:{}", base_name(function.file), function.line);
    PageRow row{{attribution.label(i)}};
    if (pids.size() > 1) row.cells.emplace_back(std::int64_t{compile.pid});
    row.cells.emplace_back(std::move(place));
    auto time = [&](std::uint64_t ns, bool known) {
      row.cells.push_back(known ? cell_of(ns) : PageCell{});
    };
    time(compile.wall_ns(period_ns), compile.first_ns != 0);
    time(compile.cpu_ns, compile.samples > 0);
    time(waits.wait_ns, waits.known);
    time(waits.runnable_ns, waits.known);
    const std::uint64_t children_ns = selection.analysis.processes().cpu_ns(i);
    time(children_ns, children_ns > 0);
    const std::uint64_t whole = shares[at].whole();
    for (std::size_t group = 0; group < kPhaseGroups; ++group) {
      if (!shown[group]) continue;
      if (whole == 0 || shares[at].ns[group] == 0) {
        row.cells.emplace_back();
        continue;
      }
      row.cells.emplace_back(100.0 * static_cast<double>(shares[at].ns[group]) /
                             static_cast<double>(whole));
    }
    row.cells.emplace_back(why(attribution, i));
    row.details = CompileRow(selection, i).details();
    row.group = flame.group_of(i, 0);
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace dynprof
