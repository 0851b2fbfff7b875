#include "user/top/function_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace dynprof {
namespace {

constexpr std::uint64_t kSecondNs = 1'000'000'000;
constexpr std::size_t kMostText = 1024;  // of a name or a path

double seconds(std::uint64_t ns) { return static_cast<double>(ns) * 1e-9; }

// How much of a stretch lies between two moments, when it is spread evenly.
std::uint64_t share_between(const FunctionTimes::Stretch& stretch, std::uint64_t from_ns,
                            std::uint64_t to_ns) {
  const std::uint64_t span = stretch.end_ns - stretch.begin_ns;
  const std::uint64_t begin = std::max(stretch.begin_ns, from_ns);
  const std::uint64_t end = std::min(stretch.end_ns, to_ns);
  if (begin >= end || span == 0) return 0;
  return static_cast<std::uint64_t>(static_cast<double>(stretch.length_ns) *
                                    static_cast<double>(end - begin) / static_cast<double>(span));
}

void cut(std::string& text) {
  if (text.size() > kMostText) text.resize(kMostText);
}

}  // namespace

FunctionTimes::FunctionTimes() : functions_(1) {}

FunctionTimes::Id FunctionTimes::function(const TopPlace& place, bool user) {
  TopPlace kept = place;
  cut(kept.function);
  cut(kept.file);
  std::string key = fmt::format("{}\n{}\n{}", kept.line, kept.file, kept.function);
  if (auto at = ids_.find(key); at != ids_.end()) return at->second;
  if (functions_.size() > kMaxFunctions) return kUnknown;
  const auto id = static_cast<Id>(functions_.size());
  Function& added = functions_.emplace_back();
  added.place = std::move(kept);
  added.user = user;
  ids_.emplace(std::move(key), id);
  return id;
}

// A function that is on the stack several times counts once.
template <class Add>
void FunctionTimes::each_once(const Stretch& stretch, const Add& add) {
  ++stretches_;
  bool leaf = true;
  for (Id id : stretch.stack) {
    const bool is_leaf = std::exchange(leaf, false);
    if (id == kUnknown || id >= functions_.size()) continue;
    if (std::exchange(functions_[id].last_seen, stretches_) != stretches_) add(id, is_leaf);
  }
}

void FunctionTimes::add(const Stretch& stretch) {
  if (stretch.end_ns < stretch.begin_ns) return;
  const auto use = static_cast<std::size_t>(stretch.use);
  const std::uint64_t last = stretch.end_ns / kSecondNs;
  std::uint64_t first = std::max(stretch.begin_ns / kSecondNs,
                                 last < kTopWindowSeconds ? 0 : last - kTopWindowSeconds + 1);
  // One that has no extent is of one moment.
  std::array<std::uint64_t, kTopWindowSeconds> parts{};
  for (std::uint64_t second = first; second <= last; ++second)
    parts[second - first] =
        stretch.begin_ns == stretch.end_ns
            ? stretch.length_ns
            : share_between(stretch, second * kSecondNs, (second + 1) * kSecondNs);
  each_once(stretch, [&](Id id, bool leaf) {
    Function& function = functions_[id];
    auto count = [&](Sums& sums, std::uint64_t ns) {
      sums.all[use] += ns;
      if (leaf) sums.self[use] += ns;
    };
    count(function.total, stretch.length_ns);
    for (std::uint64_t second = first; second <= last; ++second) {
      Slot& slot = function.slots[second % kTopWindowSeconds];
      if (slot.second > second) continue;  // waits are told when they end: this one is older
      if (slot.second != second) slot = {second, {}};
      count(slot.sums, parts[second - first]);
    }
  });
}

std::vector<TopFunction> FunctionTimes::rows(std::uint64_t now_ns, std::span<const Stretch> open) {
  // The second that has just begun, and those before it.
  const std::uint64_t last = now_ns / kSecondNs;
  const std::uint64_t first = last < kTopWindowSeconds ? 0 : last - kTopWindowSeconds + 1;
  struct Open {
    Sums now, total;
  };
  std::unordered_map<Id, Open> open_sums;
  for (const Stretch& stretch : open) {
    if (stretch.end_ns < stretch.begin_ns) continue;
    const auto use = static_cast<std::size_t>(stretch.use);
    const std::uint64_t part = share_between(stretch, first * kSecondNs, now_ns);
    each_once(stretch, [&](Id id, bool leaf) {
      Open& sums = open_sums[id];
      sums.now.all[use] += part;
      sums.total.all[use] += stretch.length_ns;
      if (leaf) sums.now.self[use] += part;
      if (leaf) sums.total.self[use] += stretch.length_ns;
    });
  }
  std::vector<TopFunction> rows;
  auto to_times = [](TopFunction::Times& out, const Sums& sums) {
    const auto cpu = static_cast<std::size_t>(Use::kCpu);
    const auto wait = static_cast<std::size_t>(Use::kWait);
    out.cpu_self_s += seconds(sums.self[cpu]);
    out.cpu_all_s += seconds(sums.all[cpu]);
    out.wait_self_s += seconds(sums.self[wait]);
    out.wait_all_s += seconds(sums.all[wait]);
  };
  for (Id id = 1; id < functions_.size(); ++id) {
    const Function& function = functions_[id];
    TopFunction row;
    to_times(row.total, function.total);
    for (const Slot& slot : function.slots)
      if (slot.second >= first && slot.second <= last) to_times(row.now, slot.sums);
    if (auto at = open_sums.find(id); at != open_sums.end()) {
      to_times(row.now, at->second.now);
      to_times(row.total, at->second.total);
    }
    if (row.total.cpu_all_s <= 0 && row.total.wait_all_s <= 0) continue;
    row.place = function.place;
    row.user = function.user;
    rows.push_back(std::move(row));
  }
  // What has run lately comes before what ran long ago.
  auto weight = [](const TopFunction& row) {
    const double now_s = row.now.cpu_all_s + row.now.wait_all_s;
    return std::pair(now_s, row.total.cpu_all_s + row.total.wait_all_s);
  };
  if (rows.size() > kMaxRows) {
    std::partial_sort(
        rows.begin(), rows.begin() + kMaxRows, rows.end(),
        [&](const TopFunction& a, const TopFunction& b) { return weight(a) > weight(b); });
    rows.resize(kMaxRows);
  }
  return rows;
}

}  // namespace dynprof
