#include "symbolizer/recording/meta_json.h"

#include <concepts>
#include <limits>
#include <nlohmann/json.hpp>

namespace dynprof::recording {
namespace {

using Json = nlohmann::json;

// The bounds of T are kept: 2^40 is no pid.
template <std::integral T>
void take(const Json& object, const char* name, T& out) {
  auto it = object.find(name);
  if (it == object.end() || !it->is_number_integer()) return;
  if (it->is_number_unsigned()) {
    auto value = it->get<std::uint64_t>();
    if (value <= static_cast<std::uint64_t>(std::numeric_limits<T>::max())) {
      out = static_cast<T>(value);
    }
  } else if (auto value = it->get<std::int64_t>();
             std::signed_integral<T> &&
             value >= static_cast<std::int64_t>(std::numeric_limits<T>::min())) {
    out = static_cast<T>(value);  // negative, so within the maximum
  }
}

void take(const Json& object, const char* name, std::string& out) {
  auto it = object.find(name);
  if (it != object.end() && it->is_string()) out = it->get<std::string>();
}

// One list of members for both directions.
template <class M, class Visit>
void visit_members(M& meta, const Visit& visit) {
  visit("target_pid", meta.target_pid);
  visit("frequency_hz", meta.frequency_hz);
  visit("period_ns", meta.period_ns);
  visit("start_ns", meta.start_ns);
  visit("realtime_offset_ns", meta.realtime_offset_ns);
  visit("event", meta.event);
  visit("host", meta.host);
  visit("kernel", meta.kernel);
  visit("command", meta.command);
  visit("python", meta.python);
  visit("torch", meta.torch);
  visit("version", meta.version);
  visit("mode", meta.mode);
}

Json to_json(const Meta& meta) {
  Json json = Json::object();
  visit_members(meta, [&](const char* name, const auto& value) { json[name] = value; });
  return json;
}

Meta from_json(const Json& json) {
  Meta meta;
  visit_members(meta, [&](const char* name, auto& value) { take(json, name, value); });
  return meta;
}

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json parse_object(std::string_view text) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return json.is_object() ? json : Json();
}

}  // namespace

std::string meta_to_json(const Meta& meta) { return dump(to_json(meta)); }

std::string trailer_to_json(const Trailer& trailer, const Meta& meta) {
  Json json = Json::object();
  json["end_ns"] = trailer.end_ns;
  json["reason"] = trailer.reason;
  json["counters"] = trailer.counters;
  json["meta"] = to_json(meta);
  return dump(json);
}

std::optional<Meta> meta_from_json(std::string_view text) {
  const Json json = parse_object(text);
  if (json.is_null()) return std::nullopt;
  return from_json(json);
}

std::optional<TrailerAndMeta> trailer_from_json(std::string_view text) {
  const Json json = parse_object(text);
  if (json.is_null()) return std::nullopt;
  TrailerAndMeta result;
  take(json, "end_ns", result.trailer.end_ns);
  take(json, "reason", result.trailer.reason);
  if (auto it = json.find("counters"); it != json.end() && it->is_object()) {
    for (auto counter = it->begin(); counter != it->end(); ++counter) {
      if (counter->is_number_unsigned()) {
        result.trailer.counters[counter.key()] = counter->get<std::uint64_t>();
      }
    }
  }
  if (auto it = json.find("meta"); it != json.end() && it->is_object())
    result.meta = from_json(*it);
  return result;
}

}  // namespace dynprof::recording
