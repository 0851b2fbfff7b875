#include "symbolizer/export/compiles_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "symbolizer/attribution/exact_compiles.h"
#include "symbolizer/attribution/machine_use.h"
#include "symbolizer/attribution/phase_groups.h"
#include "symbolizer/attribution/torch_history.h"
#include "symbolizer/base/text.h"
#include "symbolizer/export/at_end_json.h"
#include "symbolizer/export/children_json.h"
#include "symbolizer/export/formats.h"
#include "symbolizer/export/gpu_json.h"
#include "symbolizer/export/memory_json.h"
#include "symbolizer/export/regions_json.h"
#include "symbolizer/export/triton_json.h"

namespace dynprof {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxUserLines = 100;
constexpr std::size_t kMaxModules = 500;
constexpr std::size_t kMaxWaits = 50;

// Seconds to the microsecond: a double would print as 0.09999999.
Json seconds(std::uint64_t ns) { return std::round(static_cast<double>(ns) / 1e3) / 1e6; }

Json text_or_null(std::string_view text) {
  return text.empty() ? Json(nullptr) : Json(valid_utf8(text));
}

Json optional_text(const std::optional<std::string>& text) {
  return text ? Json(valid_utf8(*text)) : Json(nullptr);
}

Json breaks_json(const std::vector<PastBreak>& breaks) {
  Json list = Json::array();
  for (const PastBreak& one : breaks) {
    Json stack = Json::array();
    for (const PastBreak::Frame& frame : one.stack) {
      stack.push_back({{"file", text_or_null(frame.file)},
                       {"line", frame.line > 0 ? Json(frame.line) : Json(nullptr)},
                       {"function", text_or_null(frame.function)}});
    }
    list.push_back({{"reason", text_or_null(one.reason)},
                    {"file", text_or_null(one.file)},
                    {"line", one.line > 0 ? Json(one.line) : Json(nullptr)},
                    {"stack", std::move(stack)}});
  }
  return list;
}

class Row {
 public:
  Row(const Analysis& analysis, CompileIndex index)
      : attribution_(analysis.attribution()),
        counts_(analysis.counts()),
        generated_(analysis.generated()),
        lines_(analysis.lines()),
        modules_(analysis.modules()),
        index_(index),
        compile_(attribution_.compiles()[index]),
        timing_(attribution_.timing(index)),
        past_(attribution_.past(index)),
        period_ns_(attribution_.recording().meta().period_ns) {}

  Json json() const {
    Json object{{"trace_id", compile_.id.text()},
                {"attempt", compile_.attempt},
                {"kind", compile_kind_text(compile_.kind)},
                {"function", nullptr},
                {"file", nullptr},
                {"line", nullptr},
                {"process", compile_.pid},
                {"thread", nullptr},
                {"start_ns", nullptr},
                {"wall_s", nullptr},
                {"cpu_s", nullptr},
                {"wait_s", nullptr},
                {"children_cpu_s", nullptr},
                {"exact", compile_.exact},
                {"complete", compile_.complete()},
                {"phases", phases()},
                {"graph_breaks", Json::array()},
                {"recompile_reason", nullptr},
                {"restart_reasons", Json::array()},
                {"failed", nullptr},
                {"samples", compile_.samples},
                {"generated", generated()},
                {"user_lines", user_lines()},
                {"modules", modules()},
                {"lock_waiters", lock_waiters()},
                {"repeat", compile_.repeat},
                {"name", attribution_.file_stem(index_)},
                {"before_attach", compile_.before_attach},
                {"nested_wall_s", nullptr},
                {"torch_phases", torch_phases()},
                {"torch_wall_s", nullptr},
                {"cache", nullptr},
                {"backward_from_cache", nullptr},
                {"cudagraph_skip_reason", nullptr},
                {"metrics", nullptr},
                {"on_cpu_s", nullptr},
                {"runnable_s", nullptr},
                {"wait_kinds", nullptr},
                {"waits", Json::array()},
                {"children", Json::array()},
                {"phase_groups", phase_groups()}};
    add_function(object);
    add_times(object);
    add_waits(object);
    if (const auto* breaks = attribution_.graph_breaks(index_)) {
      object["graph_breaks"] = breaks_json(*breaks);
    }
    if (past_ != nullptr) add_past(object);
    return object;
  }

 private:
  void add_function(Json& object) const {
    CompiledFunction function = attribution_.function(index_);
    if (function.unreadable == Unreadable::kNo && !function.qualname.empty()) {
      object["function"] = text_or_null(function.name);
      object["file"] = text_or_null(function.file);
      object["line"] = function.line;
    }
    if (compile_.thread != kNoThread) {
      object["thread"] = attribution_.recording().tables().threads[compile_.thread].tid;
    }
  }

  void add_times(Json& object) const {
    std::uint64_t wall_ns = compile_.wall_ns(period_ns_);
    // An attempt that was over before a sample came, or one seen only around a nested compile.
    if (compile_.first_ns != 0) {
      object["start_ns"] = compile_.first_ns;
      object["wall_s"] = seconds(wall_ns);
    }
    if (compile_.samples != 0) object["cpu_s"] = seconds(compile_.cpu_ns);
    if (timing_ == nullptr) return;
    object["nested_wall_s"] = seconds(timing_->nested_ns);
    bool cpu_known = compile_.exact && timing_->begin_cpu_ns != 0 &&
                     timing_->end_cpu_ns >= timing_->begin_cpu_ns;
    if (!cpu_known) return;
    std::uint64_t cpu_ns = timing_->end_cpu_ns - timing_->begin_cpu_ns;
    object["wait_s"] = seconds(wall_ns - std::min(wall_ns, cpu_ns));
    if (compile_.samples == 0) object["cpu_s"] = seconds(cpu_ns);
  }

  // As the scheduler's switches tell it: wall is on_cpu + wait + runnable.
  void add_waits(Json& object) const {
    const CompileWaits& waits = counts_.recorded_waits().of(index_);
    if (!waits.known) return;
    object["wait_s"] = seconds(waits.wait_ns);
    object["on_cpu_s"] = seconds(waits.on_cpu_ns);
    object["runnable_s"] = seconds(waits.runnable_ns);
    Json kinds = Json::object();
    for (std::size_t kind = 0; kind < waits.by_kind.size(); ++kind) {
      if (waits.by_kind[kind] > 0)
        kinds[std::string(wait_kind_text(static_cast<WaitKind>(kind)))] =
            seconds(waits.by_kind[kind]);
    }
    object["wait_kinds"] = std::move(kinds);
    for (const WaitPlace& place : waits.places) {
      if (object["waits"].size() == kMaxWaits) break;
      Json row{{"kind", std::string(wait_kind_text(place.kind))},
               {"function", nullptr},
               {"file", nullptr},
               {"line", nullptr},
               {"wait_s", seconds(place.ns)},
               {"count", place.count}};
      if (place.has_frame) {
        const ResolvedFrame& frame = attribution_.frames()[place.frame];
        row["function"] = text_or_null(frame.function);
        row["file"] = text_or_null(frame.file);
        if (frame.kind == FrameKind::kPython && frame.line > 0) row["line"] = frame.line;
      }
      object["waits"].push_back(std::move(row));
    }
  }

  void add_past(Json& object) const {
    object["recompile_reason"] = optional_text(past_->recompile_reason);
    for (const std::string& reason : past_->restart_reasons) {
      object["restart_reasons"].push_back(valid_utf8(reason));
    }
    if (attribution_.is_last_attempt(index_)) object["failed"] = optional_text(past_->failed);
    if (past_->wall_ns) object["torch_wall_s"] = seconds(*past_->wall_ns);
    if (compile_.thread == kNoThread && compile_.started_ns == 0)
      object["wall_s"] = object["torch_wall_s"];
    if (past_->caches) {
      object["cache"] = {{"fx_graph_hits", past_->caches->fx_hits},
                         {"fx_graph_misses", past_->caches->fx_misses},
                         {"aot_autograd_hits", past_->caches->aot_hits},
                         {"aot_autograd_misses", past_->caches->aot_misses}};
    }
    if (past_->backward_from_cache) object["backward_from_cache"] = *past_->backward_from_cache;
    object["cudagraph_skip_reason"] = optional_text(past_->cudagraph_skip_reason);
    Json metrics = Json::object();
    for (const auto& [name, value] : past_->metrics) {
      metrics[name] = Json::parse(value, nullptr, false);
    }
    object["metrics"] = std::move(metrics);
  }

  // In our words: the time of a phase without those inside it, and its samples.
  Json phases() const {
    std::array<std::uint64_t, static_cast<std::size_t>(Phase::kCount)> samples{}, cpu_ns{};
    for (const StackCount& count : counts_.of(index_)) {
      samples[static_cast<std::size_t>(count.phase)] += count.samples;
      cpu_ns[static_cast<std::size_t>(count.phase)] += count.ns;
    }
    Json list = Json::array();
    for (std::size_t i = 0; i < samples.size(); ++i) {
      std::uint64_t wall_ns = timing_ == nullptr ? 0 : timing_->phase_ns[i];
      if (samples[i] == 0 && wall_ns == 0) continue;
      list.push_back({{"name", phase_text(static_cast<Phase>(i))},
                      {"wall_s", timing_ == nullptr ? Json(nullptr) : seconds(wall_ns)},
                      {"cpu_s", samples[i] == 0 ? Json(nullptr) : seconds(cpu_ns[i])},
                      {"samples", samples[i]}});
    }
    if (!list.empty() || past_ == nullptr || compile_.samples != 0) return list;
    for (const PastPhase& phase : past_->phases) {
      list.push_back({{"name", valid_utf8(phase.name)},
                      {"wall_s", std::round(phase.wall_s * 1e6) / 1e6},
                      {"cpu_s", nullptr},
                      {"samples", 0}});
    }
    return list;
  }

  // Wall time by the groups that the tables of `report` and `compiles` show. Where only torch's own
  // account of it is known, "inductor" and "kernel" are together.
  Json phase_groups() const {
    const GroupTimes times = group_times(attribution_, index_);
    if (times.whole() == 0) return nullptr;
    Json groups = Json::object();
    for (std::size_t i = 0; i < kPhaseGroups; ++i) {
      const auto group = static_cast<PhaseGroup>(i);
      std::string name = phase_group_name(group).column;
      if (times.kernel_in_inductor && group == PhaseGroup::kKernel) continue;
      if (times.kernel_in_inductor && group == PhaseGroup::kInductor) name += "+kernel";
      groups[name + "_s"] = seconds(times.of(group));
    }
    return groups;
  }

  Json torch_phases() const {
    Json list = Json::array();
    if (timing_ == nullptr) return list;
    const Tables& tables = attribution_.recording().tables();
    for (const TorchPhaseTime& time : timing_->torch_phases) {
      list.push_back({{"name", text_or_null(tables.strings[time.name])},
                      {"phase", phase_text(time.phase)},
                      {"count", time.count},
                      {"wall_s", seconds(time.wall_ns)},
                      {"exclusive_s", seconds(time.exclusive_ns)}});
    }
    return list;
  }

  Json user_lines() const {
    Json list = Json::array();
    for (const LineTime& line : lines_.of(index_)) {
      if (list.size() == kMaxUserLines) break;
      Json row{{"file", text_or_null(line.file)},
               {"line", line.line > 0 ? Json(line.line) : Json(nullptr)},
               {"function", text_or_null(line.function)}};
      for (LineUse use : kLineUses)
        row[fmt::format("{}_s", line_use_text(use))] = seconds(line.of(use));
      list.push_back(std::move(row));
    }
    return list;
  }

  Json modules() const {
    Json list = Json::array();
    for (const ModuleTime& module : modules_.of(index_)) {
      if (list.size() == kMaxModules) break;
      list.push_back({{"path", valid_utf8(module.path)},
                      {"tracing_s", seconds(module.of(LineUse::kTracing))},
                      {"retracing_s", seconds(module.of(LineUse::kRetracing))},
                      {"lowering_s", seconds(module.of(LineUse::kLowering))}});
    }
    return list;
  }

  Json lock_waiters() const {
    Json list = Json::array();
    for (const LockWaiter& waiter : lines_.waiters(index_))
      list.push_back({{"thread", waiter.tid}, {"wait_s", seconds(waiter.ns)}});
    return list;
  }

  Json generated() const {
    Json list = Json::array();
    for (std::uint32_t i : generated_.of(index_)) {
      const GeneratedCopy& file = generated_.files()[i];
      list.push_back({{"path", file.path()},
                      {"kind", text_or_null(file.kind)},
                      {"direction", text_or_null(file.direction)},
                      {"origin", text_or_null(file.origin)},
                      {"truncated", file.truncated}});
    }
    return list;
  }

  const Attribution& attribution_;
  const StackCounts& counts_;
  const Generated& generated_;
  const CompileLines& lines_;
  const CompileModules& modules_;
  CompileIndex index_;
  const Compile& compile_;
  const ExactCompile* timing_;
  const PastCompile* past_;
  std::uint64_t period_ns_;
};

Json start_up_json(const Analysis& analysis) {
  Json list = Json::array();
  for (const StartUp& start_up : analysis.start_ups()) {
    Json sums = Json::object(), parts = Json::array();
    for (std::size_t i = 0; i < kStartUpParts; ++i) {
      const auto part = static_cast<StartUpPart>(i);
      if (start_up.of(part) > 0) sums[start_up_text(part)] = seconds(start_up.of(part));
    }
    for (const StartUpSlice& slice : start_up.slices)
      parts.push_back({{"part", start_up_text(slice.part)},
                       {"start_ns", slice.begin_ns},
                       {"wall_s", seconds(slice.end_ns - slice.begin_ns)}});
    list.push_back({{"process", start_up.pid},
                    {"start_ns", start_up.begin_ns},
                    {"wall_s", seconds(start_up.end_ns - start_up.begin_ns)},
                    {"first_step_seen", start_up.first_step_seen},
                    {"sums", std::move(sums)},
                    {"parts", std::move(parts)}});
  }
  return list;
}

Json machine_json(const Tables& tables) {
  const MachineUse use = read_machine_use(tables);
  if (!use.known) return nullptr;
  Json others = Json::array();
  for (const auto& [name, ns] : use.others)
    others.push_back({{"name", valid_utf8(name)}, {"cpu_s", seconds(ns)}});
  return {{"cpus", use.cpus},
          {"busy_s", seconds(use.busy_ns)},
          {"idle_s", seconds(use.idle_ns)},
          {"steal_s", seconds(use.steal_ns)},
          {"own_s", seconds(use.own_ns)},
          {"others", std::move(others)}};
}

}  // namespace

std::string compiles_json(const Analysis& analysis, const std::vector<CompileIndex>& only,
                          const std::vector<std::string>& user_packages) {
  const Attribution& attribution = analysis.attribution();
  const Recording& recording = attribution.recording();
  const Meta& meta = recording.meta();
  Json lost = Json::object();
  for (const auto& [name, count] : recording.trailer().counters) {
    if (name != "samples") lost[valid_utf8(name)] = count;
  }
  std::vector<CompileIndex> wanted = only;
  if (only.empty()) {
    wanted.resize(attribution.compiles().size());
    std::iota(wanted.begin(), wanted.end(), CompileIndex{0});
  }
  Json compiles = Json::array();
  const ProcessTree& tree = analysis.processes();
  const std::vector<StillOpen> open = still_open(analysis);
  const CompileMemories memory(attribution, tree);
  for (CompileIndex i : wanted) {
    Json row = Row(analysis, i).json();
    row["at_end"] = at_end_json(open, i);
    row["memory"] = memory_json(memory.of(i));
    add_children(row, analysis, i);
    compiles.push_back(std::move(row));
  }
  const EdgeLosses& losses = attribution.spans().losses();
  Json document{
      {"version", 1},
      {"pid", meta.target_pid <= 0 ? Json(nullptr) : Json(meta.target_pid)},
      {"torch", text_or_null(meta.torch)},
      {"python", text_or_null(meta.python)},
      {"frequency_hz", meta.frequency_hz},
      {"samples", recording.sample_count()},
      {"lost", std::move(lost)},
      {"compiles", std::move(compiles)},
      {"attributed", attribution.attributed()},
      {"unattributed", attribution.unattributed()},
      {"runtime", attribution.runtime()},
      {"detached", attribution.detached()},
      {"agreement",
       {{"both", attribution.agreement().both}, {"differ", attribution.agreement().differ}}},
      {"edges",
       {{"count", attribution.spans().edge_count()},
        {"begins_missing", losses.begins},
        {"ends_missing", losses.ends}}},
      {"graph_breaks", breaks_json(attribution.history().graph_breaks)}};
  if (Json start_up = start_up_json(analysis); !start_up.empty())
    document["start_up"] = std::move(start_up);
  if (Json machine = machine_json(recording.tables()); !machine.is_null())
    document["machine"] = std::move(machine);
  if (tree.known()) document["processes"] = processes_json(analysis);
  if (Json runs = regions_json(analysis); !runs.is_null()) document["runs"] = std::move(runs);
  if (Json triton = triton_json(analysis); !triton.is_null())
    document["triton"] = std::move(triton);
  if (Json gpu = gpu_json(analysis, user_packages); !gpu.is_null())
    document["gpu"] = std::move(gpu);
  return document.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<void> export_json(const ExportRequest& request) {
  return request.write(
      compiles_json(request.analysis, request.compiles, request.settings.user_packages));
}

}  // namespace dynprof
