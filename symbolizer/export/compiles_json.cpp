#include "symbolizer/export/compiles_json.h"

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "symbolizer/base/text.h"

namespace dynprof {
namespace {

using Json = nlohmann::ordered_json;

// Seconds to the microsecond: a double would print as 0.09999999.
Json seconds(std::uint64_t ns) { return std::round(static_cast<double>(ns) / 1e3) / 1e6; }

Json text_or_null(std::string_view text) {
  return text.empty() ? Json(nullptr) : Json(valid_utf8(text));
}

Json phases_of(const StackCounts& counts, CompileIndex index, std::uint64_t period_ns) {
  std::array<std::uint64_t, static_cast<std::size_t>(Phase::kCount)> samples{};
  for (const StackCount& count : counts.of(index)) {
    samples[static_cast<std::size_t>(count.phase)] += count.samples;
  }
  Json phases = Json::array();
  for (std::size_t phase = 0; phase < samples.size(); ++phase) {
    if (samples[phase] == 0) continue;
    phases.push_back({{"name", phase_text(static_cast<Phase>(phase))},
                      {"wall_s", nullptr},
                      {"cpu_s", seconds(samples[phase] * period_ns)},
                      {"samples", samples[phase]}});
  }
  return phases;
}

Json compile_object(const Attribution& attribution, const StackCounts& counts, CompileIndex index) {
  const Recording& recording = attribution.recording();
  const Tables& tables = recording.tables();
  const Compile& compile = attribution.compiles()[index];
  const Thread& thread = tables.threads[compile.thread];
  std::uint64_t period_ns = recording.meta().period_ns;

  Json object{{"trace_id", compile.id.text()},
              {"attempt", compile.attempt},
              {"kind", compile_kind_text(compile.kind)},
              {"function", nullptr},
              {"file", nullptr},
              {"line", nullptr},
              {"process", thread.pid},
              {"thread", thread.tid},
              {"start_ns", nullptr},
              {"wall_s", nullptr},
              {"cpu_s", nullptr},
              {"wait_s", nullptr},
              {"children_cpu_s", nullptr},
              {"exact", false},
              {"complete", !compile.began_before && !compile.open_at_end},
              {"phases", phases_of(counts, index, period_ns)},
              {"graph_breaks", Json::array()},
              {"recompile_reason", nullptr},
              {"restart_reasons", Json::array()},
              {"failed", nullptr},
              {"samples", compile.samples},
              {"generated", Json::array()},
              {"repeat", compile.repeat},
              {"name", attribution.file_stem(index)}};
  if (compile.user_code != 0 && tables.codes[compile.user_code].unreadable == Unreadable::kNo) {
    const Code& code = tables.codes[compile.user_code];
    object["function"] = text_or_null(tables.strings[code.name]);
    object["file"] = text_or_null(tables.strings[code.filename]);
    object["line"] = code.first_line;
  }
  // An attempt that was over before a sample came, or one seen only around a nested compile.
  if (compile.first_ns != 0) {
    object["start_ns"] = compile.first_ns;
    object["wall_s"] = seconds(compile.last_ns - compile.first_ns + period_ns);
  }
  if (compile.samples != 0) object["cpu_s"] = seconds(compile.samples * period_ns);
  return object;
}

}  // namespace

std::string compiles_json(const Attribution& attribution, const StackCounts& counts) {
  const Recording& recording = attribution.recording();
  const Meta& meta = recording.meta();
  Json lost = Json::object();
  for (const auto& [name, count] : recording.trailer().counters) {
    if (name != "samples") lost[valid_utf8(name)] = count;
  }
  Json compiles = Json::array();
  for (CompileIndex i = 0; i < attribution.compiles().size(); ++i) {
    compiles.push_back(compile_object(attribution, counts, i));
  }
  Json document{{"version", 1},
                {"pid", meta.target_pid == 0 ? Json(nullptr) : Json(meta.target_pid)},
                {"torch", text_or_null(meta.torch)},
                {"python", text_or_null(meta.python)},
                {"frequency_hz", meta.frequency_hz},
                {"samples", recording.sample_count()},
                {"lost", std::move(lost)},
                {"compiles", std::move(compiles)},
                {"attributed", attribution.attributed()},
                {"unattributed", attribution.unattributed()},
                {"runtime", attribution.runtime()},
                {"detached", attribution.detached()}};
  return document.dump(1) + "\n";
}

}  // namespace dynprof
