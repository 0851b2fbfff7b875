#include "user/gpu/rank_set.h"

#include <algorithm>
#include <charconv>

namespace dynprof {
namespace {

constexpr std::size_t kMaxDigits = 7;

std::optional<std::uint32_t> parse_rank(std::string_view text) {
  std::uint32_t rank = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), rank);
  if (text.empty() || text.size() > kMaxDigits || failure != std::errc() ||
      end != text.data() + text.size())
    return std::nullopt;
  return rank;
}

}  // namespace

bool is_rank(std::string_view text) { return parse_rank(text).has_value(); }

std::optional<RankSet> RankSet::parse(std::string_view text) {
  RankSet set;
  if (text == "all") return set;
  for (std::string_view rest = text;;) {
    const std::string_view word = rest.substr(0, rest.find(','));
    const std::size_t dash = word.find('-');
    const auto first = parse_rank(word.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : parse_rank(word.substr(dash + 1));
    if (!first || !last || *first > *last) return std::nullopt;
    set.ranges_.emplace_back(*first, *last);
    if (word.size() == rest.size()) return set;
    rest.remove_prefix(word.size() + 1);
  }
}

bool RankSet::contains(std::string_view rank) const {
  if (all()) return true;
  const auto number = parse_rank(rank);
  return number && std::any_of(ranges_.begin(), ranges_.end(), [&](const auto& range) {
           return range.first <= *number && *number <= range.second;
         });
}

}  // namespace dynprof
