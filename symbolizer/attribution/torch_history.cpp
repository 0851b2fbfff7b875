#include "symbolizer/attribution/torch_history.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "symbolizer/attribution/torch_states.h"
#include "symbolizer/base/text.h"

namespace dynprof {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMaxRows = 20'000;
constexpr std::size_t kMaxItems = 1000;
constexpr std::size_t kMaxText = 16'384;
constexpr std::size_t kMaxFrames = 100;
constexpr std::size_t kMaxMetrics = 300;
constexpr std::size_t kMaxMetricText = 512;
// The same row of both documents: the two clocks drift between them.
constexpr std::uint64_t kSameRowNs = 20'000'000;
// No machine is up for 31 years: a number this large counts from 1970.
constexpr std::uint64_t kEpochNs = 1'000'000'000'000'000'000;

const Json* field(const Json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::string capped(const std::string& full) {
  if (full.size() <= kMaxText) return full;
  std::size_t end = kMaxText;
  while (end > 0 && (static_cast<unsigned char>(full[end]) & 0xc0) == 0x80) --end;
  return full.substr(0, end);
}
std::string capped(const Json& string) { return capped(string.get_ref<const std::string&>()); }

std::optional<std::string> text(const Json& object, const char* name) {
  const Json* value = field(object, name);
  return value != nullptr && value->is_string() ? std::optional(capped(*value)) : std::nullopt;
}

std::optional<std::int64_t> integer(const Json& object, const char* name) {
  const Json* value = field(object, name);
  if (value == nullptr || !value->is_number_integer()) return std::nullopt;
  if (value->is_number_unsigned() &&
      value->get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX)) {
    return std::nullopt;
  }
  return value->get<std::int64_t>();
}

std::int32_t small(const Json& object, const char* name) {
  std::int64_t value = integer(object, name).value_or(0);
  return value > 0 && value <= INT32_MAX ? static_cast<std::int32_t>(value) : 0;
}

std::uint64_t count(const Json& object, const char* name) {
  std::int64_t value = integer(object, name).value_or(0);
  return value > 0 ? static_cast<std::uint64_t>(value) : 0;
}

std::optional<double> seconds(const Json& object, const char* name) {
  const Json* value = field(object, name);
  if (value == nullptr || !value->is_number()) return std::nullopt;
  double number = value->get<double>();
  constexpr double kYear = 4e7;
  return std::isfinite(number) && number >= 0 && number < kYear ? std::optional(number)
                                                                : std::nullopt;
}

template <class Visit>
void for_each_item(const Json& object, const char* name, std::size_t most, const Visit& visit) {
  const Json* list = field(object, name);
  if (list == nullptr || !list->is_array()) return;
  for (const Json& item : *list) {
    if (most-- == 0) return;
    visit(item);
  }
}

std::optional<CompileKind> kind_named(std::string_view name) {
  for (CompileKind kind : {CompileKind::kForward, CompileKind::kBackward,
                           CompileKind::kCompiledAutograd, CompileKind::kExport}) {
    if (name == compile_kind_text(kind)) return kind;
  }
  return std::nullopt;
}

std::optional<PastBreak> read_break(const Json& item) {
  auto reason = text(item, "reason");
  if (!reason) return std::nullopt;
  PastBreak found{std::move(*reason), text(item, "file").value_or(""), small(item, "line")};
  for_each_item(item, "stack", kMaxFrames, [&](const Json& frame) {
    found.stack.push_back({text(frame, "file").value_or(""), text(frame, "function").value_or(""),
                           small(frame, "line")});
  });
  return found;
}

std::optional<std::uint64_t> start_of(const Json& row, std::int64_t realtime_offset_ns) {
  auto from_epoch = [&](std::uint64_t ns) -> std::optional<std::uint64_t> {
    auto offset = static_cast<std::uint64_t>(std::max<std::int64_t>(realtime_offset_ns, 0));
    return ns > offset ? std::optional(ns - offset) : std::nullopt;
  };
  if (std::uint64_t ns = count(row, "start_ns"); ns > 0) {
    return ns < kEpochNs ? std::optional(ns) : from_epoch(ns);
  }
  const Json* metrics = field(row, "metrics");
  std::uint64_t us = metrics != nullptr ? count(*metrics, "start_time_us") : 0;
  constexpr std::uint64_t kMostUs = UINT64_MAX / 1000;
  return us > 0 && us < kMostUs ? from_epoch(us * 1000) : std::nullopt;
}

void read_metrics(const Json& row, PastCompile& compile) {
  const Json* metrics = field(row, "metrics");
  if (metrics == nullptr || !metrics->is_object()) return;
  for (const auto& [name, value] : metrics->items()) {
    bool is_short =
        value.is_number() || value.is_boolean() ||
        (value.is_string() && value.get_ref<const std::string&>().size() <= kMaxMetricText);
    if (!is_short || name.size() > kMaxMetricText) continue;
    if (compile.metrics.size() == kMaxMetrics) return;
    compile.metrics.emplace_back(name, value.dump());
  }
}

std::optional<PastCompile> read_row(const Json& row, std::int32_t pid,
                                    std::int64_t realtime_offset_ns) {
  auto id = text(row, "trace_id");
  auto kind = kind_named(text(row, "kind").value_or(""));
  if (!id || !kind) return std::nullopt;
  PastCompile compile;
  compile.pid = pid;
  compile.id = parse_trace_id(*id);
  if (!is_valid(compile.id)) return std::nullopt;
  compile.kind = *kind;
  compile.attempt = small(row, "attempt");
  compile.function = text(row, "function").value_or("");
  compile.file = text(row, "file").value_or("");
  compile.line = small(row, "line");
  compile.start_ns = start_of(row, realtime_offset_ns);
  if (auto wall = seconds(row, "wall_s")) {
    compile.wall_ns = static_cast<std::uint64_t>(std::llround(*wall * 1e9));
  }
  for_each_item(row, "graph_breaks", kMaxItems, [&](const Json& item) {
    if (auto found = read_break(item)) compile.graph_breaks.push_back(std::move(*found));
  });
  for_each_item(row, "restart_reasons", kMaxItems, [&](const Json& item) {
    if (item.is_string()) compile.restart_reasons.push_back(capped(item));
  });
  for_each_item(row, "phases", kMaxItems, [&](const Json& item) {
    auto name = text(item, "name");
    auto wall = seconds(item, "wall_s");
    if (name && wall) compile.phases.push_back({std::move(*name), *wall});
  });
  compile.recompile_reason = text(row, "recompile_reason");
  compile.failed = text(row, "failed");
  compile.cudagraph_skip_reason = text(row, "cudagraph_skip_reason");
  if (const Json* cache = field(row, "cache"); cache != nullptr && cache->is_object()) {
    compile.caches =
        PastCaches{count(*cache, "fx_graph_hits"), count(*cache, "fx_graph_misses"),
                   count(*cache, "aot_autograd_hits"), count(*cache, "aot_autograd_misses")};
  }
  if (const Json* from = field(row, "backward_from_cache"); from != nullptr && from->is_boolean()) {
    compile.backward_from_cache = from->get<bool>();
  }
  read_metrics(row, compile);
  return compile;
}

bool same(const PastCompile& a, const PastCompile& b) {
  if (a.pid != b.pid || a.id != b.id || a.kind != b.kind) return false;
  if (!a.start_ns || !b.start_ns) return a.start_ns == b.start_ns && a.wall_ns == b.wall_ns;
  std::uint64_t apart =
      *a.start_ns > *b.start_ns ? *a.start_ns - *b.start_ns : *b.start_ns - *a.start_ns;
  return apart <= kSameRowNs;
}

class Reader {
 public:
  Reader(const Tables& tables, std::int64_t realtime_offset_ns)
      : tables_(tables), realtime_offset_ns_(realtime_offset_ns) {}

  TorchHistory read() {
    for (bool at_attach : {true, false}) {
      for (const Fact& fact : tables_.facts) {
        if (tables_.strings[fact.kind] != "history") continue;
        if ((tables_.strings[fact.name] == "attach") == at_attach) add(fact, at_attach);
      }
    }
    std::stable_sort(history_.compiles.begin(), history_.compiles.end(),
                     [](const PastCompile& a, const PastCompile& b) {
                       return a.start_ns.value_or(0) < b.start_ns.value_or(0);
                     });
    return std::move(history_);
  }

 private:
  void add(const Fact& fact, bool at_attach) {
    std::string_view body = tables_.blobs[fact.body];
    Json document = Json::parse(body.begin(), body.end(), nullptr, false);
    if (!document.is_object()) {
      ++history_.unreadable;
      return;
    }
    const std::uint64_t forked_ns = forked_at(fact);
    for_each_item(document, "compiles", kMaxRows, [&](const Json& item) {
      auto row = read_row(item, fact.pid, realtime_offset_ns_);
      if (!row) {
        ++history_.unreadable;
        return;
      }
      if (row->start_ns && *row->start_ns < forked_ns) return;  // its parent's, copied by fork
      row->before_attach = at_attach;
      keep(std::move(*row));
    });
    if (at_attach) return;
    for_each_item(document, "graph_breaks", kMaxItems, [&](const Json& item) {
      if (auto found = read_break(item)) history_.graph_breaks.push_back(std::move(*found));
      if (!text(item, "trace_id")) history_.breaks_without_compile = true;
    });
  }

  // When the process of a fact was forked; 0: before the recording.
  std::uint64_t forked_at(const Fact& fact) const {
    std::uint64_t forked_ns = 0;
    for (const ProcessLife& life : tables_.lives) {
      if (life.pid == fact.pid && life.kind == LifeKind::kFork && life.time_ns <= fact.time_ns)
        forked_ns = std::max(forked_ns, life.time_ns);
    }
    return forked_ns;
  }

  // Of a row in both documents the later one counts, for what torch added meanwhile.
  void keep(PastCompile row) {
    auto [begin, end] = places_.equal_range({row.pid, row.id});
    for (auto it = begin; it != end; ++it) {
      PastCompile& known = history_.compiles[it->second];
      if (!same(known, row)) continue;
      row.before_attach = known.before_attach || row.before_attach;
      known = std::move(row);
      return;
    }
    if (history_.compiles.size() == kMaxRows) return;
    places_.emplace(std::pair(row.pid, row.id), history_.compiles.size());
    history_.compiles.push_back(std::move(row));
  }

  const Tables& tables_;
  std::int64_t realtime_offset_ns_;
  TorchHistory history_;
  std::multimap<std::pair<std::int32_t, TraceId>, std::size_t> places_;
};

}  // namespace

PastBreak past_break(const Tables& tables, const GraphBreak& recorded) {
  auto text = [&](StringId id) { return capped(valid_utf8(tables.strings[id])); };
  PastBreak found;
  found.reason = text(recorded.reason);
  for (const UserCall& call : recorded.calls) {
    const std::int32_t line = call.line <= INT32_MAX ? static_cast<std::int32_t>(call.line) : 0;
    found.stack.push_back({text(call.file), text(call.function), line});
  }
  if (found.stack.empty()) return found;
  found.file = found.stack.back().file;
  found.line = found.stack.back().line;
  if (found.stack.size() > kMaxFrames) found.stack.resize(kMaxFrames);
  return found;
}

TorchHistory read_history(const Tables& tables, std::int64_t realtime_offset_ns) {
  return Reader(tables, realtime_offset_ns).read();
}

}  // namespace dynprof
