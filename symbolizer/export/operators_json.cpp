#include "symbolizer/export/operators_json.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "symbolizer/base/text.h"
#include "symbolizer/export/formats.h"
#include "symbolizer/report/operator_rows.h"
#include "symbolizer/report/rows.h"

namespace dynprof {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxOperators = 2000;
constexpr std::size_t kMaxParts = 100;

Json seconds(std::uint64_t ns) { return static_cast<double>(ns) / 1e9; }

Json text_or_null(std::string_view text) {
  return text.empty() ? Json(nullptr) : Json(valid_utf8(text));
}

void add_sums(Json& to, const OperatorSums& sums) {
  to["self_s"] = seconds(sums.self_ns);
  to["total_s"] = seconds(sums.total_ns);
  to["wait_s"] = seconds(sums.wait_ns);
  to["self_samples"] = sums.self_samples;
  to["total_samples"] = sums.total_samples;
}

Json share_json(std::uint64_t part, std::uint64_t whole) {
  const auto rounded = [](double share) { return std::round(share * 1e6) / 1e6; };
  const ShareInterval interval = share_interval(part, whole);
  const double share = whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
  return {
      {"share", rounded(share)}, {"low", rounded(interval.low)}, {"high", rounded(interval.high)}};
}

Json place_json(const OperatorAtPlace& at) {
  const bool compile = at.place.kind == OperatorPlaceKind::kCompile;
  Json json{{"in", operator_place_text(at.place.kind)},
            {"trace_id", compile ? Json(nullptr) : text_or_null(at.place.id)},
            {"backward", at.place.backward},
            {"compile", compile ? text_or_null(at.place.id) : Json(nullptr)}};
  add_sums(json, at.sums);
  return json;
}

Json line_json(const OperatorAtLine& at) {
  Json json{{"line", text_or_null(at.line)}};
  add_sums(json, at.sums);
  return json;
}

Json operator_json(const OperatorRow& row, const OperatorRows& table) {
  Json json{{"name", valid_utf8(row.name->name)},
            {"overload", text_or_null(row.name->overload)},
            {"kind", operator_kind_text(row.name->kind)}};
  add_sums(json, row.sums);
  json["self"] = share_json(row.sums.self_samples, table.all_samples);
  json["total"] = share_json(row.sums.total_samples, table.all_samples);
  Json places = Json::array(), lines = Json::array();
  for (std::size_t i = 0; i < std::min(row.places.size(), kMaxParts); ++i)
    places.push_back(place_json(row.places[i]));
  for (std::size_t i = 0; i < std::min(row.lines.size(), kMaxParts); ++i)
    lines.push_back(line_json(row.lines[i]));
  json["regions"] = std::move(places);
  json["regions_left_out"] = row.places.size() - std::min(row.places.size(), kMaxParts);
  json["lines"] = std::move(lines);
  json["lines_left_out"] = row.lines.size() - std::min(row.lines.size(), kMaxParts);
  return json;
}

}  // namespace

std::string operators_json(const Selection& selection) {
  const OperatorRows table = operator_rows(selection);
  const Meta& meta = selection.attribution().recording().meta();
  Json operators = Json::array();
  for (std::size_t i = 0; i < std::min(table.rows.size(), kMaxOperators); ++i)
    operators.push_back(operator_json(table.rows[i], table));
  const Json document{{"version", 1},
                      {"sampled", true},
                      {"pid", meta.target_pid > 0 ? Json(meta.target_pid) : Json(nullptr)},
                      {"torch", text_or_null(meta.torch)},
                      {"frequency_hz", meta.frequency_hz},
                      {"samples", table.all_samples},
                      {"samples_in_operators", table.samples},
                      {"samples_cut", table.cut_samples},
                      {"samples_incomplete", selection.analysis.counts().incomplete()},
                      {"cpu_s", seconds(table.all_ns)},
                      {"cpu_in_operators_s", seconds(table.self_ns)},
                      {"operators", std::move(operators)},
                      {"left_out", table.rows.size() - std::min(table.rows.size(), kMaxOperators)}};
  return document.dump(1, ' ', false, Json::error_handler_t::replace) + '\n';
}

Result<void> export_operators(const ExportRequest& request) {
  ReportOptions options;
  options.compiles = request.compiles;
  options.user_packages = request.settings.user_packages;
  return request.write(operators_json(select_samples(request.analysis, options)));
}

}  // namespace dynprof
