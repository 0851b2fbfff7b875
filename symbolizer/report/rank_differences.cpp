#include "symbolizer/report/rank_differences.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "symbolizer/report/sections.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxGroups = 3;
constexpr std::size_t kMaxNamed = 4;  // compiles of a group, ranks of a group

// How often each trace id was compiled; a restart is no further compile.
using Compiled = std::map<std::string, std::size_t>;

struct Group {
  const Compiled* compiled = nullptr;
  std::vector<std::uint64_t> ranks{};  // rising
};

std::string named(const std::vector<std::string>& names) {
  const std::size_t shown = std::min(names.size(), kMaxNamed);
  std::string text = fmt::format(
      "{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  if (names.size() > shown) text += fmt::format(" and {} more", grouped(names.size() - shown));
  return text;
}

std::string ranks_text(const std::vector<std::uint64_t>& ranks) {
  std::vector<std::string> names;
  for (std::uint64_t rank : ranks) names.push_back(std::to_string(rank));
  return (ranks.size() == 1 ? "rank " : "ranks ") + named(names);
}

// "also compiled 0/1 and did not compile 2/0".
std::string difference(const Compiled& base, const Compiled& of) {
  std::vector<std::string> more, less;
  for (const auto& [id, count] : of) {
    const auto known = base.find(id);
    if (known == base.end())
      more.push_back(id);
    else if (known->second < count)
      more.push_back(fmt::format("{} {} times instead of {}", id, count, known->second));
  }
  for (const auto& [id, count] : base) {
    const auto known = of.find(id);
    if (known == of.end())
      less.push_back(id);
    else if (known->second < count)
      less.push_back(fmt::format("{} {} times instead of {}", id, known->second, count));
  }
  std::string text = more.empty() ? "" : "also compiled " + named(more);
  if (!less.empty()) text += (text.empty() ? "" : " and ") + ("did not compile " + named(less));
  return text;
}

}  // namespace

std::string rank_differences(const Attribution& attribution) {
  if (attribution.ranks().empty()) return "";
  std::map<std::int32_t, Compiled> by_pid;
  for (const auto& [pid, rank] : attribution.ranks()) by_pid[pid];
  for (CompileIndex i = 0; i < attribution.compiles().size(); ++i) {
    const Compile& compile = attribution.compiles()[i];
    const auto of = by_pid.find(compile.pid);
    if (of == by_pid.end() || !attribution.is_last_attempt(i)) continue;
    std::string id = compile.kind == CompileKind::kForward
                         ? ""
                         : std::string(compile_kind_text(compile.kind)) + " ";
    ++of->second[id + compile.id.text()];
  }
  std::map<Compiled, Group> groups;
  for (const auto& [pid, compiled] : by_pid) {
    auto at = groups.try_emplace(compiled).first;
    at->second.compiled = &at->first;
    at->second.ranks.push_back(std::stoull(attribution.ranks().at(pid)));
  }
  if (groups.size() == 1) return fmt::format("{} ranks compiled the same", grouped(by_pid.size()));
  std::vector<Group> order;
  for (auto& [compiled, group] : groups) {
    std::sort(group.ranks.begin(), group.ranks.end());
    order.push_back(std::move(group));
  }
  std::stable_sort(order.begin(), order.end(), [](const Group& a, const Group& b) {
    if (a.ranks.size() != b.ranks.size()) return a.ranks.size() > b.ranks.size();
    return a.ranks.front() < b.ranks.front();
  });
  std::string text;
  for (std::size_t i = 1; i < std::min(order.size(), kMaxGroups + 1); ++i)
    text += fmt::format("{}{} {}", text.empty() ? "" : "; ", ranks_text(order[i].ranks),
                        difference(*order[0].compiled, *order[i].compiled));
  if (order.size() > kMaxGroups + 1)
    text += fmt::format("; {} more groups of ranks differ", order.size() - kMaxGroups - 1);
  return fmt::format("{} ranks: {}", grouped(by_pid.size()), text);
}

}  // namespace dynprof
