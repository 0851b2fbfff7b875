#include "symbolizer/attribution/ledger.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

namespace dynprof {
namespace {

constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();
// torch's clock is the wall clock: it may have been set a little since.
constexpr std::uint64_t kSlackNs = 20'000'000;

// All attempts of one compile.
struct Episode {
  CompileKind kind = CompileKind::kForward;
  std::uint64_t first_ns = kNever, last_ns = 0;
  std::vector<CompileIndex> attempts;
  bool taken = false;
};

class HistoryMerge {
 public:
  HistoryMerge(const Recording& recording, std::vector<Compile>& compiles)
      : start_ns_(recording.meta().start_ns), compiles_(compiles) {
    std::map<std::uint32_t, Episode> episodes;
    for (CompileIndex i = 0; i < compiles.size(); ++i) {
      const Compile& compile = compiles[i];
      Episode& episode = episodes[compile.episode];
      episode.kind = compile.kind;
      episode.attempts.push_back(i);
      if (compile.first_ns == 0) continue;
      episode.first_ns = std::min(episode.first_ns, compile.first_ns);
      episode.last_ns = std::max(episode.last_ns, compile.last_ns);
    }
    for (auto& [number, episode] : episodes) {
      next_episode_ = number + 1;
      const Compile& first = compiles[episode.attempts.front()];
      by_id_[{first.pid, first.id}].push_back(std::move(episode));
    }
  }

  void add(const PastCompile& past, std::uint32_t index) {
    if (Episode* episode = find(past)) {
      episode->taken = true;
      for (CompileIndex attempt : episode->attempts) compiles_[attempt].history = index;
      return;
    }
    Compile compile;
    compile.id = past.id;
    compile.kind = past.kind;
    compile.attempt = past.attempt;
    compile.thread = kNoThread;
    compile.pid = past.pid;
    compile.history = index;
    compile.episode = next_episode_++;
    compile.exact = past.start_ns && past.wall_ns;
    compile.first_ns = past.start_ns.value_or(0);
    compile.last_ns = compile.first_ns + past.wall_ns.value_or(0);
    compile.noticed_ns = compile.first_ns;
    compile.before_attach = past.before_attach || (compile.exact && compile.last_ns <= start_ns_);
    compiles_.push_back(compile);
  }

 private:
  // The compile that this row is about: at the same time, or the only one there can be.
  Episode* find(const PastCompile& past) {
    auto same = by_id_.find({past.pid, past.id});
    if (same == by_id_.end()) return nullptr;
    Episode* best = nullptr;
    std::uint64_t least = kNever;
    std::size_t possible = 0;
    for (Episode& episode : same->second) {
      // torch notes no kind: what is neither forward nor backward to it looks like a forward.
      bool kinds_fit = episode.kind == past.kind ||
                       (past.kind == CompileKind::kForward && episode.kind == CompileKind::kExport);
      if (episode.taken || !kinds_fit) continue;
      ++possible;
      if (!past.start_ns) {
        if (!past.before_attach) best = &episode;
        continue;
      }
      std::uint64_t begin = *past.start_ns;
      std::uint64_t end = begin + past.wall_ns.value_or(0);
      bool apart = episode.first_ns > episode.last_ns || episode.first_ns > end + kSlackNs ||
                   begin > episode.last_ns + kSlackNs;
      if (apart) continue;
      std::uint64_t gap = std::max(begin, episode.first_ns) - std::min(begin, episode.first_ns);
      if (gap < least) {
        least = gap;
        best = &episode;
      }
    }
    return past.start_ns || possible == 1 ? best : nullptr;
  }

  std::uint64_t start_ns_;
  std::vector<Compile>& compiles_;
  std::map<std::pair<std::int32_t, TraceId>, std::vector<Episode>> by_id_;
  std::uint32_t next_episode_ = 0;
};

void sort_compiles(std::vector<Compile>& compiles, std::vector<Answer>& answers) {
  std::vector<CompileIndex> order(compiles.size());
  std::iota(order.begin(), order.end(), CompileIndex{0});
  std::stable_sort(order.begin(), order.end(), [&](CompileIndex a, CompileIndex b) {
    auto key = [&](CompileIndex i) {
      return std::tuple(compiles[i].noticed_ns, compiles[i].episode, compiles[i].attempt);
    };
    return key(a) < key(b);
  });
  std::vector<CompileIndex> renumbered(compiles.size(), kNoCompile);
  std::vector<Compile> sorted;
  sorted.reserve(compiles.size());
  for (CompileIndex old : order) {
    renumbered[old] = static_cast<CompileIndex>(sorted.size());
    sorted.push_back(compiles[old]);
  }
  compiles = std::move(sorted);
  for (Answer& answer : answers) {
    if (answer.compile != kNoCompile) answer.compile = renumbered[answer.compile];
  }
}

// Of those we saw, and apart from them of those from before.
void count_repeats(std::vector<Compile>& compiles) {
  using Key = std::tuple<bool, std::int32_t, CompileKind, TraceId>;
  std::map<Key, std::map<std::uint32_t, std::uint32_t>> episodes;
  for (Compile& compile : compiles) {
    auto& numbers = episodes[{compile.before_attach, compile.pid, compile.kind, compile.id}];
    auto next = static_cast<std::uint32_t>(numbers.size() + 1);
    compile.repeat = numbers.try_emplace(compile.episode, next).first->second;
  }
}

// A backward is of the function its forward was compiled from: the last such before it.
void complete_functions(std::vector<Compile>& compiles) {
  std::map<std::pair<std::int32_t, TraceId>, CodeId> user_codes;
  for (Compile& compile : compiles) {
    CodeId& user_code = user_codes[{compile.pid, compile.id}];
    if (compile.kind == CompileKind::kBackward) {
      if (compile.user_code == 0) compile.user_code = user_code;
    } else if (compile.user_code != 0) {
      user_code = compile.user_code;
    }
  }
}

}  // namespace

void merge_history(const Recording& recording, const TorchHistory& history,
                   std::vector<Compile>& compiles) {
  HistoryMerge merge(recording, compiles);
  for (std::uint32_t i = 0; i < history.compiles.size(); ++i) merge.add(history.compiles[i], i);
}

void order_compiles(std::vector<Compile>& compiles, std::vector<Answer>& answers) {
  // Attempts that were not seen stay with their compile.
  std::map<std::uint32_t, std::uint64_t> begins;
  for (const Compile& compile : compiles) {
    auto [begin, added] = begins.try_emplace(compile.episode, compile.noticed_ns);
    begin->second = std::min(begin->second, compile.noticed_ns);
  }
  for (Compile& compile : compiles) {
    if (compile.samples == 0 && compile.first_ns == 0) {
      compile.noticed_ns = begins[compile.episode];
    }
  }
  sort_compiles(compiles, answers);
  count_repeats(compiles);
  complete_functions(compiles);
  for (Compile& compile : compiles) compile.samples = 0;
  for (const Answer& answer : answers) {
    if (answer.compile != kNoCompile) ++compiles[answer.compile].samples;
  }
}

}  // namespace dynprof
