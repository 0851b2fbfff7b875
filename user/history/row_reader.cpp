#include "user/history/row_reader.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "user/history/metric_fields.h"
#include "user/target/clock.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxFields = 512;
constexpr std::size_t kMaxItems = 256;
constexpr std::size_t kMaxText = 65'536;

// Sets and lists of strings (restart_reasons, stack_trace), dicts (feature_usage).
void read_container(RemoteValues& values, std::uint64_t object, MetricValue& value) {
  auto items = values.list_items(object, kMaxItems);
  bool sorted = !items;
  if (!items) items = values.set_items(object, kMaxItems);
  if (items) {
    value.shape = MetricValue::Shape::kItems;
    value.items = values.values(*items, kMaxText);
    if (sorted) {
      std::sort(value.items.begin(), value.items.end(),
                [](const RemoteValue& a, const RemoteValue& b) { return a.text < b.text; });
    }
    return;
  }
  auto pairs = values.dict_items(object, kMaxItems);
  if (!pairs) return;
  value.shape = MetricValue::Shape::kPairs;
  for (const DictEntry& pair : *pairs) {
    auto key = values.read_str(pair.key, kMaxText);
    if (key) value.pairs.emplace_back(std::move(*key), values.value(pair.value, kMaxText));
  }
}

}  // namespace

std::optional<HistoryRow> read_row(RemoteValues& values, std::uint64_t object,
                                   std::set<std::string>& unread_fields) {
  if (!values.is_a(object, "CompilationMetrics")) return std::nullopt;
  auto named = values.attributes(object, kMaxFields);
  if (!named || named->empty()) return std::nullopt;
  std::vector<std::uint64_t> addresses;
  for (const NamedValue& field : *named) addresses.push_back(field.value);
  std::vector<RemoteValue> scalars = values.values(addresses, kMaxText);
  HistoryRow row;
  for (std::size_t i = 0; i < named->size(); ++i) {
    MetricValue value;
    value.scalar = std::move(scalars[i]);
    if (value.scalar.kind == RemoteValue::Kind::kOther) read_container(values, addresses[i], value);
    if (value.scalar.kind == RemoteValue::Kind::kNothing) unread_fields.insert((*named)[i].name);
    row.metrics.emplace_back(std::move((*named)[i].name), std::move(value));
  }
  interpret_metrics(row, realtime_offset_ns() / 1000);
  return row;
}

bool is_runtime(const HistoryRow& row) {
  const MetricValue* metric = find_metric(row, "is_runtime");
  return metric && metric->scalar.kind == RemoteValue::Kind::kBool && metric->scalar.integer == 1;
}

}  // namespace dynprof
