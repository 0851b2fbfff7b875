#include "symbolizer/attribution/ranks.h"

#include <algorithm>
#include <string_view>

namespace dynprof {
namespace {

constexpr std::size_t kMaxDigits = 7;

bool is_rank(std::string_view text) {
  return !text.empty() && text.size() <= kMaxDigits &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::map<std::int32_t, std::string> read_ranks(const Tables& tables,
                                               const std::set<std::int32_t>& compiling) {
  std::map<std::int32_t, std::string> ranks;
  for (const Fact& fact : tables.facts) {
    if (tables.strings[fact.kind] != "rank" || !compiling.contains(fact.pid)) continue;
    if (const std::string_view rank = tables.strings[fact.name]; is_rank(rank))
      ranks[fact.pid] = rank;
  }
  std::set<std::string> different;
  for (const auto& [pid, rank] : ranks)
    if (!different.insert(rank).second) return {};
  return ranks.size() > 1 ? ranks : std::map<std::int32_t, std::string>();
}

}  // namespace dynprof
