#include "user/history/metric_fields.h"

#include <algorithm>
#include <charconv>
#include <map>

namespace dynprof {
namespace {

constexpr const char* kDynamo = "dynamo_cumulative_compile_time_us";
constexpr const char* kBackward = "backward_cumulative_compile_time_us";
constexpr const char* kAot = "aot_autograd_cumulative_compile_time_us";
constexpr const char* kInductor = "inductor_cumulative_compile_time_us";
constexpr const char* kCodegen = "inductor_code_gen_cumulative_compile_time_us";

// From the dynamo_timed calls that name a dynamo_compile_column_us in torch 2.6 to 2.14, with what
// calls what there. Not time of the compile, and so left out: duration_us, start_time_us, end_time_us;
// structured_logging_overhead_us (spread over all), dynamo_compile_time_before_restart_us (part of
// Dynamo's), distributed_ephemeral_timeout_us (time a cache hit saved), guard_latency_us (of a call).
constexpr PhaseField kFields[] = {
    {kDynamo, Phase::kDynamo, {}},
    {kBackward, Phase::kAotAutograd, {kDynamo}},
    {"pgo_get_remote_code_state_time_us", Phase::kCache, {kDynamo}},
    {"pgo_put_remote_code_state_time_us", Phase::kCache, {kDynamo}},
    {"gc_time_us", Phase::kDynamo, {kDynamo}},
    {kAot, Phase::kAotAutograd, {kDynamo}},
    {"pre_grad_pass_time_us", Phase::kInductor, {kAot, kDynamo}},
    {"joint_graph_pass_time_us", Phase::kInductor, {kAot, kBackward, kDynamo}},
    {kInductor, Phase::kInductor, {kAot, kBackward, kDynamo}},
    {"post_grad_pass_time_us", Phase::kInductor, {kInductor, kAot, kBackward}},
    {"compile_time_autotune_time_us", Phase::kAutotune, {kInductor, kAot, kBackward}},
    {kCodegen, Phase::kInductor, {kInductor, kAot, kBackward}},
    // Waiting for kernels; of a cached graph, loading them, and then no code is generated.
    {"triton_compile_time_us", Phase::kKernelCompile, {kCodegen, kInductor, kAot, kBackward}},
    {"remote_fx_graph_cache_get_time_us", Phase::kCache, {kInductor, kAot, kBackward}},
    {"remote_fx_graph_cache_put_time_us", Phase::kCache, {kInductor, kAot, kBackward}},
    {"runtime_cudagraphify_time_us", Phase::kCudagraphs, {}},
    {"runtime_triton_autotune_time_us", Phase::kAutotune, {}},
};

CompileKind kind_of(const HistoryRow& row) {
  const MetricValue* forward = find_metric(row, "is_forward");
  bool told = forward && forward->scalar.kind == RemoteValue::Kind::kBool;
  if (told && forward->scalar.integer == 0) return CompileKind::kBackward;
  if (!row.trace_id.empty() && row.trace_id[0] == '!' &&
      row.trace_id.find('/') == std::string::npos) {
    return CompileKind::kCompiledAutograd;
  }
  // `_compile` notes is_forward when it comes to an end, and its time in any case (a compile refused
  // for its recompile limit). Strict export and AOTInductor have neither.
  if (told || int_metric(row, kDynamo)) return CompileKind::kForward;
  return int_metric(row, kBackward) ? CompileKind::kBackward : CompileKind::kExport;
}

void add_phases(HistoryRow& row) {
  std::map<std::string_view, std::int64_t> nested_us;
  std::vector<std::pair<const PhaseField*, std::int64_t>> found;
  for (const PhaseField& field : kFields) {
    auto us = int_metric(row, field.name);
    if (!us || *us <= 0) continue;
    found.emplace_back(&field, *us);
    for (const char* outer : field.inside) {
      if (!outer || int_metric(row, outer).value_or(0) <= 0) continue;
      nested_us[outer] += *us;
      break;
    }
  }
  for (const auto& [field, us] : found) {
    // A field may be counted by several threads or outside its parent: never less than nothing.
    std::int64_t self_us = std::max<std::int64_t>(0, us - nested_us[field->name]);
    row.phases.push_back({field->phase, field->name, static_cast<double>(us) * 1e-6,
                          static_cast<double>(self_us) * 1e-6});
  }
}

void add_cache(HistoryRow& row) {
  auto count = [&](const char* name) {
    auto number = int_metric(row, name);
    row.cache.known = row.cache.known || number.has_value();
    return std::clamp<std::int64_t>(number.value_or(0), 0, 1 << 30);
  };
  // The remote cache is asked after a local miss.
  auto misses = [&](std::int64_t local, std::int64_t remote, std::int64_t remote_hits) {
    return std::max(remote, local - remote_hits);
  };
  std::int64_t remote_hits = count("inductor_fx_remote_cache_hit_count");
  row.cache.fx_hits = count("inductor_fx_local_cache_hit_count") + remote_hits;
  row.cache.fx_misses = misses(count("inductor_fx_local_cache_miss_count"),
                               count("inductor_fx_remote_cache_miss_count"), remote_hits);
  remote_hits = count("aotautograd_remote_cache_hit_count");
  row.cache.aot_hits = count("aotautograd_local_cache_hit_count") + remote_hits;
  row.cache.aot_misses = misses(count("aotautograd_local_cache_miss_count"),
                                count("aotautograd_remote_cache_miss_count"), remote_hits);
  // An entry of AOTAutogradCache holds the forward, and for training the compiled backward too; each
  // is looked up in FxGraphCache: two hits per entry, or one where there is no backward. Any other
  // number (a bundled entry, part of a split graph missed) does not tell.
  const CacheUse& cache = row.cache;
  if (row.kind != CompileKind::kForward || cache.aot_hits <= 0 || cache.aot_misses != 0 ||
      cache.fx_misses != 0) {
    return;
  }
  if (cache.fx_hits == 2 * cache.aot_hits) row.backward_from_cache = true;
  if (cache.fx_hits == cache.aot_hits) row.backward_from_cache = false;
}

}  // namespace

std::span<const PhaseField> phase_fields() { return kFields; }

double HistoryRow::wall_s() const {
  if (duration_us && *duration_us > 0) return static_cast<double>(*duration_us) * 1e-6;
  if (start_us && end_us && *end_us > *start_us) {
    return static_cast<double>(*end_us - *start_us) * 1e-6;
  }
  return 0;
}

const MetricValue* find_metric(const HistoryRow& row, std::string_view name) {
  for (const auto& [field, value] : row.metrics) {
    if (field == name) return &value;
  }
  return nullptr;
}

std::optional<std::int64_t> int_metric(const HistoryRow& row, std::string_view name) {
  const MetricValue* metric = find_metric(row, name);
  if (!metric || metric->shape != MetricValue::Shape::kScalar) return std::nullopt;
  if (metric->scalar.kind != RemoteValue::Kind::kInt) return std::nullopt;
  return metric->scalar.integer;
}

std::optional<std::string> text_metric(const HistoryRow& row, std::string_view name) {
  const MetricValue* metric = find_metric(row, name);
  if (!metric || metric->shape != MetricValue::Shape::kScalar) return std::nullopt;
  if (metric->scalar.kind != RemoteValue::Kind::kStr) return std::nullopt;
  return metric->scalar.text;
}

void interpret_metrics(HistoryRow& row, std::int64_t monotonic_offset_us) {
  row.trace_id = text_metric(row, "compile_id").value_or("");
  row.function = text_metric(row, "co_name").value_or("");
  row.file = text_metric(row, "co_filename").value_or("");
  row.line = int_metric(row, "co_firstlineno");
  row.start_us = int_metric(row, "start_time_us");
  row.end_us = int_metric(row, "end_time_us");
  row.duration_us = int_metric(row, "duration_us");
  constexpr std::int64_t kMaxUs = 1LL << 53;  // the year 2255; a wrong number is no time
  for (auto* time : {&row.start_us, &row.end_us, &row.duration_us}) {
    if (*time && (**time < 0 || **time > kMaxUs)) time->reset();
  }
  if (row.start_us && *row.start_us > monotonic_offset_us) {
    row.start_ns = (*row.start_us - monotonic_offset_us) * 1000;
  }
  row.recompile_reason = text_metric(row, "recompile_reason");
  row.fail_type = text_metric(row, "fail_type");
  row.fail_reason = text_metric(row, "fail_reason");
  row.cudagraph_skip_reason = text_metric(row, "cudagraph_skip_reason");
  if (const MetricValue* reasons = find_metric(row, "restart_reasons")) {
    for (const RemoteValue& reason : reasons->items) {
      if (reason.kind == RemoteValue::Kind::kStr) row.restart_reasons.push_back(reason.text);
    }
  }
  row.kind = kind_of(row);
  if (!row.fail_type) row.attempt = static_cast<std::int64_t>(row.restart_reasons.size());
  add_phases(row);
  add_cache(row);
}

std::optional<FrameCompile> frame_compile(std::string_view text) {
  if (!text.empty() && text[0] == '!') {
    std::size_t slash = text.find('/');
    if (slash == std::string_view::npos) return std::nullopt;
    text.remove_prefix(slash + 1);
  }
  FrameCompile id;
  const char* end = text.data() + text.size();
  auto [middle, bad] = std::from_chars(text.data(), end, id.frame);
  if (bad != std::errc() || middle == end || *middle != '/') return std::nullopt;
  auto [rest, worse] = std::from_chars(middle + 1, end, id.compile);
  if (worse != std::errc() || rest != end) return std::nullopt;
  return id;
}

void name_by_frame(std::vector<HistoryRow>& rows) {
  std::map<std::int64_t, const HistoryRow*> named;
  for (HistoryRow& row : rows) {
    auto id = frame_compile(row.trace_id);
    if (!id) continue;
    if (row.kind == CompileKind::kForward && *id == FrameCompile{0, 0}) named.clear();
    if (!row.function.empty()) {
      named[id->frame] = &row;
    } else if (auto known = named.find(id->frame);
               known != named.end() && row.kind != CompileKind::kExport) {
      row.function = known->second->function;
      row.file = known->second->file;
      row.line = known->second->line;
    }
  }
}

}  // namespace dynprof
