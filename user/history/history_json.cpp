// The history as JSON: rows in the schema of compiles.json, with what only torch's own record has.
#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "symbolizer/base/text.h"
#include "user/history/compile_history.h"
#include "user/history/graph_breaks.h"

namespace dynprof {
namespace {

using Json = nlohmann::ordered_json;

// Longer texts that rows share (the configurations, 30 KB each) are written once.
constexpr std::size_t kSharedLength = 512;

Json seconds(double s) { return std::round(s * 1e6) / 1e6; }

Json text_or_null(std::string_view text) {
  return text.empty() ? Json(nullptr) : Json(valid_utf8(text));
}

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json optional_text(const std::optional<std::string>& text) {
  return text ? Json(valid_utf8(*text)) : Json(nullptr);
}

class Texts {
 public:
  explicit Texts(const CompileHistory& history) {
    for (const auto* rows : {&history.rows, &history.runtime}) {
      for (const HistoryRow& row : *rows) {
        for (const auto& [name, value] : row.metrics) {
          if (is_long(value.scalar)) ++uses_[value.scalar.text];
        }
      }
    }
  }

  // {"text": i} of the document's "texts", for a text that several rows have.
  Json json(const RemoteValue& value) {
    switch (value.kind) {
      case RemoteValue::Kind::kNothing:
      case RemoteValue::Kind::kNone:
        return nullptr;
      case RemoteValue::Kind::kBool:
        return value.integer != 0;
      case RemoteValue::Kind::kInt:
        return value.integer;
      case RemoteValue::Kind::kFloat:
        return value.number;
      case RemoteValue::Kind::kOther:
        return "<" + valid_utf8(value.text) + ">";
      case RemoteValue::Kind::kStr:
        break;
    }
    auto use = uses_.find(value.text);
    if (use == uses_.end() || use->second < 2) return valid_utf8(value.text);
    auto [place, added] = places_.try_emplace(value.text, texts_.size());
    if (added) texts_.push_back(valid_utf8(value.text));
    return Json{{"text", place->second}};
  }
  Json take() { return std::move(texts_); }

 private:
  static bool is_long(const RemoteValue& value) {
    return value.kind == RemoteValue::Kind::kStr && value.text.size() >= kSharedLength;
  }
  std::map<std::string_view, std::size_t> uses_;
  std::map<std::string_view, std::size_t> places_;
  Json texts_ = Json::array();
};

Json metric_json(const MetricValue& value, Texts& texts) {
  if (value.shape == MetricValue::Shape::kItems) {
    Json items = Json::array();
    for (const RemoteValue& item : value.items) items.push_back(texts.json(item));
    return items;
  }
  if (value.shape == MetricValue::Shape::kPairs) {
    Json pairs = Json::object();
    for (const auto& [name, item] : value.pairs) pairs[valid_utf8(name)] = texts.json(item);
    return pairs;
  }
  return texts.json(value.scalar);
}

Json phases_json(const HistoryRow& row) {
  Json phases = Json::array();
  for (const HistoryPhase& phase : row.phases) {
    phases.push_back({{"name", phase_text(phase.phase)},
                      {"wall_s", seconds(phase.self_s)},
                      {"cpu_s", nullptr},
                      {"samples", 0},
                      {"torch", phase.torch_field},
                      {"total_s", seconds(phase.total_s)}});
  }
  return phases;
}

Json break_json(const HistoryBreak& cause, const CompileHistory& history) {
  Json object = graph_break_json(cause);
  object["trace_id"] =
      cause.compile ? text_or_null(history.rows[*cause.compile].trace_id) : Json(nullptr);
  return object;
}

Json cache_json(const CacheUse& cache) {
  if (!cache.known) return nullptr;
  return {{"fx_graph_hits", cache.fx_hits},
          {"fx_graph_misses", cache.fx_misses},
          {"aot_autograd_hits", cache.aot_hits},
          {"aot_autograd_misses", cache.aot_misses}};
}

Json failed_json(const HistoryRow& row) {
  if (!row.fail_type && !row.fail_reason) return nullptr;
  std::string text = row.fail_type.value_or("failed");
  if (row.fail_reason) text += ": " + *row.fail_reason;
  return valid_utf8(text);
}

// `texts`: null to leave the metrics out.
Json row_json(const HistoryRow& row, const CompileHistory& history, Texts* texts) {
  Json breaks = Json::array();
  for (std::size_t i : row.graph_breaks) {
    breaks.push_back(break_json(history.graph_breaks[i], history));
  }
  Json reasons = Json::array();
  for (const std::string& reason : row.restart_reasons) reasons.push_back(valid_utf8(reason));
  double wall = row.wall_s();
  Json object{{"trace_id", text_or_null(row.trace_id)},
              {"attempt", or_null(row.attempt)},
              {"kind", compile_kind_text(row.kind)},
              {"function", text_or_null(row.function)},
              {"file", text_or_null(row.file)},
              {"line", or_null(row.line)},
              {"process", history.pid},
              {"thread", nullptr},
              {"start_ns", or_null(row.start_ns)},
              {"wall_s", wall > 0 ? seconds(wall) : Json(nullptr)},
              {"cpu_s", nullptr},
              {"wait_s", nullptr},
              {"children_cpu_s", nullptr},
              {"exact", true},
              {"complete", true},
              {"phases", phases_json(row)},
              {"graph_breaks", std::move(breaks)},
              {"recompile_reason", optional_text(row.recompile_reason)},
              {"restart_reasons", std::move(reasons)},
              {"failed", failed_json(row)},
              {"samples", 0},
              {"generated", Json::array()},
              {"source", "history"},
              {"cache", cache_json(row.cache)},
              {"backward_from_cache", or_null(row.backward_from_cache)},
              {"cudagraph_skip_reason", optional_text(row.cudagraph_skip_reason)}};
  if (!texts) return object;
  Json metrics = Json::object();
  for (const auto& [name, value] : row.metrics) {
    metrics[valid_utf8(name)] = metric_json(value, *texts);
  }
  object["metrics"] = std::move(metrics);
  return object;
}

Json rows_json(const std::vector<HistoryRow>& rows, const CompileHistory& history, Texts* texts) {
  std::vector<const HistoryRow*> oldest_first;
  for (const HistoryRow& row : rows) oldest_first.push_back(&row);
  // The deque has them by their end.
  std::stable_sort(oldest_first.begin(), oldest_first.end(),
                   [](const HistoryRow* a, const HistoryRow* b) {
                     return a->start_us.value_or(0) < b->start_us.value_or(0);
                   });
  Json list = Json::array();
  for (const HistoryRow* row : oldest_first) list.push_back(row_json(*row, history, texts));
  return list;
}

Json times_json(const CompileHistory& history) {
  Json times = Json::object();
  for (const TimedFunction& timed : history.times) times[valid_utf8(timed.name)] = timed.seconds;
  return times;
}

Json counters_json(const CompileHistory& history) {
  Json counters = Json::object();
  for (const CounterGroup& group : history.counters) {
    Json counts = Json::object();
    for (const auto& [name, count] : group.counts) counts[valid_utf8(name)] = count;
    counters[valid_utf8(group.name)] = std::move(counts);
  }
  return counters;
}

}  // namespace

nlohmann::ordered_json to_json(const CompileHistory& history, bool with_metrics) {
  Texts shared(history);
  Texts* texts = with_metrics ? &shared : nullptr;
  Json breaks = Json::array();
  for (const HistoryBreak& cause : history.graph_breaks) {
    breaks.push_back(break_json(cause, history));
  }
  Json problems = Json::array();
  for (const std::string& text : history.problems) problems.push_back(valid_utf8(text));
  Json document{{"version", 1},
                {"pid", history.pid},
                {"torch", text_or_null(history.torch)},
                {"python", text_or_null(history.python)},
                {"compiles", rows_json(history.rows, history, texts)},
                {"runtime", rows_json(history.runtime, history, texts)},
                {"rows_dropped", history.rows_dropped},
                {"graph_breaks", std::move(breaks)},
                {"times", times_json(history)},
                {"counters", counters_json(history)},
                {"frames", or_null(history.frames)},
                {"problems", std::move(problems)}};
  if (with_metrics) document["texts"] = shared.take();
  return document;
}

}  // namespace dynprof
