#include "symbolizer/report/fold_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "symbolizer/attribution/torch_history.h"
#include "symbolizer/report/findings.h"

namespace dynprof {
namespace {

// A rank that took so much longer than the middle one of those that compiled the same.
constexpr double kMuchLonger = 1.5;
constexpr std::uint64_t kLongerNs = 500'000'000;

struct Member {
  CompileIndex compile = kNoCompile;
  std::uint64_t rank = 0;
  std::uint64_t wall_ns = 0;
};

// Everything of a compile's row but its times. Texts may hold anything: their sizes keep them apart.
std::string key_of(const Attribution& attribution, CompileIndex index) {
  const Compile& compile = attribution.compiles()[index];
  std::string key = fmt::format("{} {}{}{}", attribution.label_in_process(index),
                                compile.began_before, compile.open_at_end, compile.before_attach);
  auto add = [&](std::string_view text) { key += fmt::format(" {}:{}", text.size(), text); };
  add(function_place(attribution, index));
  if (const PastCompile* past = attribution.past(index)) {
    add(past->recompile_reason.value_or(""));
    add(past->failed.value_or(""));
  }
  if (const auto* breaks = attribution.graph_breaks(index)) {
    for (const PastBreak& one : *breaks) {
      add(one.reason);
      add(one.file);
      key += fmt::format(" {}", one.line);
    }
  }
  return key;
}

std::uint64_t number_of(const std::string& rank) {
  std::uint64_t number = 0;
  std::from_chars(rank.data(), rank.data() + rank.size(), number);
  return number;
}

FoldedCompile fold(const std::vector<Member>& members) {
  FoldedCompile folded;
  std::uint64_t longest_ns = 0;
  for (const Member& member : members) {
    folded.ranks.push_back(member.rank);
    if (folded.compile != kNoCompile && member.wall_ns <= longest_ns) continue;
    folded.compile = member.compile;
    longest_ns = member.wall_ns;
  }
  std::sort(folded.ranks.begin(), folded.ranks.end());
  return folded;
}

void add_group(std::vector<Member> members, std::vector<FoldedCompile>& out) {
  std::stable_sort(members.begin(), members.end(),
                   [](const Member& a, const Member& b) { return a.wall_ns < b.wall_ns; });
  const std::uint64_t middle_ns = members[(members.size() - 1) / 2].wall_ns;
  const auto slow = std::partition_point(members.begin(), members.end(), [&](const Member& member) {
    return member.wall_ns <= middle_ns + kLongerNs ||
           static_cast<double>(member.wall_ns) <= kMuchLonger * static_cast<double>(middle_ns);
  });
  for (auto one = slow; one != members.end(); ++one) out.push_back({one->compile, {one->rank}});
  members.erase(slow, members.end());
  out.push_back(fold(members));
}

}  // namespace

std::vector<FoldedCompile> fold_ranks(const Attribution& attribution,
                                      const std::vector<CompileIndex>& compiles) {
  const std::uint64_t period_ns = attribution.recording().meta().period_ns;
  std::vector<FoldedCompile> out;
  std::map<std::string, std::vector<Member>> groups;
  for (CompileIndex i : compiles) {
    const Compile& compile = attribution.compiles()[i];
    const auto rank = attribution.ranks().find(compile.pid);
    if (rank == attribution.ranks().end()) {
      out.push_back({i, {}});
      continue;
    }
    groups[key_of(attribution, i)].push_back(
        {i, number_of(rank->second), compile.wall_ns(period_ns)});
  }
  for (auto& [key, members] : groups) add_group(std::move(members), out);
  std::sort(out.begin(), out.end(),
            [](const FoldedCompile& a, const FoldedCompile& b) { return a.compile < b.compile; });
  return out;
}

std::string rank_ranges(const std::vector<std::uint64_t>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += last == i ? fmt::format("{}", ranks[i]) : fmt::format("{}-{}", ranks[i], ranks[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace dynprof
