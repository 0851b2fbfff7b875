#include "user/top/finished_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "user/history/metric_fields.h"
#include "user/history/row_reader.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxItems = 8192;
constexpr std::size_t kMaxReason = 2048;

std::string id_of(const HistoryRow& row) {
  std::string id = row.trace_id.empty() ? "-" : row.trace_id;
  if (row.kind == CompileKind::kBackward) return "backward " + id;
  if (row.kind == CompileKind::kExport) return "export " + id;
  return id;
}

std::string cache_word(const CacheUse& cache) {
  const std::int64_t hits = cache.fx_hits + cache.aot_hits;
  const std::int64_t misses = cache.fx_misses + cache.aot_misses;
  if (hits == 0) return misses == 0 ? "" : "miss";
  return misses == 0 ? "hit" : "part";
}

}  // namespace

FinishedCompile finished_compile(const HistoryRow& row) {
  FinishedCompile out;
  out.id = id_of(row);
  if (auto attempt = row.attempt.value_or(0); attempt > 0) out.id += fmt::format(" #{}", attempt);
  out.function.function = row.function;
  out.function.file = row.file;
  if (row.line && *row.line > 0 && *row.line <= INT32_MAX)
    out.function.line = static_cast<std::int32_t>(*row.line);
  out.end_us = row.end_us;
  if (!out.end_us && row.start_us && row.duration_us) out.end_us = *row.start_us + *row.duration_us;
  out.wall_s = row.wall_s();
  std::array<double, static_cast<std::size_t>(Phase::kCount)> seconds{};
  for (const HistoryPhase& phase : row.phases)
    seconds[static_cast<std::size_t>(phase.phase)] += phase.self_s;
  for (std::size_t i = 0; i < seconds.size(); ++i)
    if (seconds[i] > 0) out.phases.emplace_back(static_cast<Phase>(i), seconds[i]);
  std::stable_sort(out.phases.begin(), out.phases.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  out.cache = cache_word(row.cache);
  out.recompile_reason = row.recompile_reason.value_or("").substr(0, kMaxReason);
  if (row.fail_type || row.fail_reason) {
    out.failure = fmt::format("{}: {}", row.fail_type.value_or("error"),
                              row.fail_reason.value_or("").substr(0, kMaxReason));
  }
  return out;
}

std::size_t items_gone(const std::vector<std::uint64_t>& then,
                       const std::vector<std::uint64_t>& now) {
  for (std::size_t gone = 0; gone < then.size(); ++gone) {
    auto kept = then.begin() + static_cast<std::ptrdiff_t>(gone);
    if (then.size() - gone <= now.size() && std::equal(kept, then.end(), now.begin())) return gone;
  }
  return then.size();
}

std::optional<std::vector<std::uint64_t>> FinishedRows::items(TargetView& view) {
  auto found = deque_ == 0 ? std::nullopt : view.values.deque_items(deque_, kMaxItems);
  if (found) return found;
  // The first look, or the program set another limit, which makes a new deque.
  auto utils = view.objects.find_module(view.runtime.main_interpreter, "torch._dynamo.utils");
  deque_ = utils ? view.objects.module_get(*utils, "_compilation_metrics").value_or(0) : 0;
  return deque_ == 0 ? std::nullopt : view.values.deque_items(deque_, kMaxItems);
}

bool FinishedRows::read(TargetView& view) {
  auto now = items(view);
  if (!now) return false;
  dropped_ =
      now->size() > kMaxRows || (!now->empty() && view.values.deque_limit(deque_) == now->size());
  if (now->size() > kMaxRows)
    now->erase(now->begin(), now->end() - static_cast<std::ptrdiff_t>(kMaxRows));
  std::vector<std::uint64_t> then;
  for (const Item& item : items_) then.push_back(item.address);
  const std::size_t gone = items_gone(then, *now);
  bool changed = gone != 0;
  items_.erase(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(gone));
  for (std::size_t i = items_.size(); i < now->size(); ++i) items_.push_back({(*now)[i], {}, 0});
  std::size_t left = kReadsAtOnce;
  for (auto item = items_.rbegin(); item != items_.rend() && left != 0; ++item) {
    if (item->row || item->tries == kTries) continue;
    --left;
    ++item->tries;
    item->row = read_row(view.values, item->address, unread_fields_);
    unread_fields_.clear();
    if (!item->row) continue;
    if (is_runtime(*item->row)) {
      item->row.reset();
      item->tries = kTries;
      continue;
    }
    item->row->metrics.clear();
    changed = true;
  }
  if (changed) show();
  return changed;
}

void FinishedRows::show() {
  named_.clear();
  for (const Item& item : items_)
    if (item.row) named_.push_back(*item.row);
  name_by_frame(named_);
  shown_.clear();
  for (auto row = named_.rbegin(); row != named_.rend(); ++row)
    shown_.push_back(finished_compile(*row));
}

std::optional<TopPlace> FinishedRows::function_of(std::int64_t frame) const {
  for (auto row = named_.rbegin(); row != named_.rend(); ++row) {
    auto id = frame_compile(row->trace_id);
    if (id && id->frame == frame && !row->function.empty()) return finished_compile(*row).function;
  }
  return std::nullopt;
}

}  // namespace dynprof
