#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "symbolizer/attribution/ledger.h"

namespace dynprof {
namespace {

constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();
// A sample may show a compile's frame a little before torch opens its first phase, or after the last.
constexpr std::uint64_t kSlackNs = 100'000'000;
// What samples show as one may be several: attempts, or calls with no sample between them.
constexpr std::size_t kMaxParts = 256;

std::uint64_t distance(std::uint64_t begin, std::uint64_t end, std::uint64_t from,
                       std::uint64_t to) {
  if (to < begin) return begin - to;
  return from > end ? from - end : 0;
}

class Merge {
 public:
  Merge(const Recording& recording, const Spans& spans, const ExactCompiles& exact,
        std::vector<Compile>& compiles, std::vector<Answer>& answers)
      : recording_(recording),
        spans_(spans),
        exact_(exact),
        compiles_(compiles),
        answers_(answers),
        facts_(exact.all().size()),
        parts_(compiles.size()) {
    for (std::uint32_t i = 0; i < exact.all().size(); ++i) {
      by_id_[{exact.all()[i].row, exact.all()[i].id}].push_back(i);
    }
  }

  void run() {
    for_each([this](const Sample& sample, Answer& answer, std::uint32_t& moved) {
      place(sample, answer, moved);
    });
    for (CompileIndex i = 0; i < parts_.size(); ++i) {
      if (parts_[i].empty() && compiles_[i].first_ns != 0) find_near(i);
    }
    for_each([this](const Sample& sample, Answer& answer, std::uint32_t& moved) {
      if (moved == kNoIndex && answer.compile != kNoCompile)
        moved = nearest(answer.compile, sample);
      if (moved != kNoIndex) see(moved, sample.time_ns);
    });
    rebuild();
  }

 private:
  // What samples add to an exact compile.
  struct Seen {
    std::uint64_t first_ns = kNever, last_ns = 0;
    std::optional<TraceId> id;
    std::optional<CompileKind> kind;
    CompileIndex source = kNoCompile;  // the last of those the samples made that is this one
  };

  template <class Visit>
  void for_each(const Visit& visit) {
    moved_.resize(answers_.size(), kNoIndex);
    std::size_t index = 0;
    recording_.for_each_sample([&](const Sample& sample) {
      if (index >= answers_.size()) return;
      visit(sample, answers_[index], moved_[index]);
      ++index;
    });
  }

  void place(const Sample& sample, Answer& answer, std::uint32_t& moved) {
    std::size_t row = spans_.row_of(sample.thread);
    if (answer.compile == kNoCompile) {
      ExactMoment moment = exact_.at(row, sample.time_ns);
      if (moment.compile == kNoIndex || !is_valid(exact_.all()[moment.compile].id)) return;
      moved = moment.compile;
      answer.phase = moment.phase;
      answer.origin = Origin::kExact;
      return;
    }
    moved = exact_.find(row, sample.time_ns, compiles_[answer.compile].id);
    if (moved == kNoIndex) {
      ExactMoment moment = exact_.at(row, sample.time_ns);
      // Edges without an id: that of the samples between them.
      if (moment.compile == kNoIndex || is_valid(exact_.all()[moment.compile].id)) return;
      // A compile inside a capture, its own phase not open yet, or not any more.
      const bool in_capture = exact_.all()[moment.compile].kind == CompileKind::kCompiledAutograd;
      if (in_capture && compiles_[answer.compile].id.frame >= 0) return;
      if (facts_[moment.compile].id.value_or(compiles_[answer.compile].id) !=
          compiles_[answer.compile].id) {
        return;
      }
      moved = moment.compile;
    }
    link(answer.compile, moved);
  }

  void link(CompileIndex compile, std::uint32_t exact) {
    std::vector<std::uint32_t>& parts = parts_[compile];
    bool is_new = parts.empty() || parts.back() != exact;
    if (is_new && parts.size() < kMaxParts) parts.push_back(exact);
    Seen& seen = facts_[exact];
    seen.id = compiles_[compile].id;
    if (!seen.kind) seen.kind = compiles_[compile].kind;
    seen.source = compile;
  }

  // No sample of it lies between edges, but one may be right beside them.
  void find_near(CompileIndex index) {
    const Compile& compile = compiles_[index];
    auto same = by_id_.find({spans_.row_of(compile.thread), compile.id});
    if (same == by_id_.end()) return;
    std::uint32_t best = kNoIndex;
    std::uint64_t least = kSlackNs;
    for (std::uint32_t i : same->second) {
      const ExactCompile& exact = exact_.all()[i];
      if (exact.kind.value_or(compile.kind) != compile.kind) continue;
      std::uint64_t gap = distance(exact.begin_ns, exact.end_ns, compile.first_ns, compile.last_ns);
      // Of several attempts the one of that number.
      if (gap < least || (gap == least && exact.attempt == compile.attempt)) {
        least = gap;
        best = i;
      }
    }
    if (best != kNoIndex) link(index, best);
  }

  std::uint32_t nearest(CompileIndex compile, const Sample& sample) const {
    std::uint32_t best = kNoIndex;
    std::uint64_t least = kNever;
    for (std::uint32_t part : parts_[compile]) {
      const ExactCompile& exact = exact_.all()[part];
      std::uint64_t gap = distance(exact.begin_ns, exact.end_ns, sample.time_ns, sample.time_ns);
      if (gap < least) {
        least = gap;
        best = part;
      }
    }
    return best;
  }

  void see(std::uint32_t exact, std::uint64_t time_ns) {
    Seen& seen = facts_[exact];
    seen.first_ns = std::min(seen.first_ns, time_ns);
    seen.last_ns = std::max(seen.last_ns, time_ns);
  }

  Compile make(std::uint32_t index) const {
    const ExactCompile& exact = exact_.all()[index];
    const Seen& seen = facts_[index];
    const Compile* source = seen.source == kNoCompile ? nullptr : &compiles_[seen.source];
    Compile compile;
    compile.id = is_valid(exact.id) ? exact.id : seen.id.value_or(exact.id);
    bool by_frames = !exact.attempt_told && source != nullptr;
    compile.attempt = by_frames ? source->attempt : exact.attempt;
    compile.kind = exact.kind ? *exact.kind : seen.kind.value_or(CompileKind::kExport);
    compile.thread = exact.thread;
    compile.pid = recording_.tables().threads[exact.thread].pid;
    compile.user_code = exact.user_code;
    if (compile.user_code == 0 && source != nullptr) compile.user_code = source->user_code;
    compile.exact = exact.begin_known && exact.end_known;
    compile.first_ns = exact.begin_known ? exact.begin_ns : std::min(exact.begin_ns, seen.first_ns);
    compile.last_ns = exact.end_known ? exact.end_ns : std::max(exact.end_ns, seen.last_ns);
    if (exact.first_of_episode && !exact.begin_known) {
      compile.began_before = source == nullptr || source->began_before;
    }
    if (exact.last_of_episode && !exact.end_known) {
      compile.open_at_end = source == nullptr ? exact.open_at_end : source->open_at_end;
    }
    compile.episode = first_episode_ + exact.episode;
    compile.timing = index;
    compile.noticed_ns = compile.first_ns;
    return compile;
  }

  // By episode of the samples: the edges' own, where they know it.
  std::map<std::uint32_t, std::uint32_t> known_episodes() const {
    std::map<std::uint32_t, std::uint32_t> known;
    for (CompileIndex i = 0; i < parts_.size(); ++i) {
      if (parts_[i].empty()) continue;
      known[compiles_[i].episode] = first_episode_ + exact_.all()[parts_[i].front()].episode;
    }
    return known;
  }

  void rebuild() {
    for (const Compile& compile : compiles_) {
      first_episode_ = std::max(first_episode_, compile.episode + 1);
    }
    std::map<std::uint32_t, std::uint32_t> known = known_episodes();
    std::set<std::pair<std::uint32_t, std::int32_t>> attempts;  // of episodes
    std::vector<Compile> all;
    std::vector<CompileIndex> of_exact(exact_.all().size(), kNoCompile);
    for (std::uint32_t i = 0; i < of_exact.size(); ++i) {
      if (!is_valid(exact_.all()[i].id) && !facts_[i].id) continue;
      of_exact[i] = static_cast<CompileIndex>(all.size());
      all.push_back(make(i));
      attempts.emplace(all.back().episode, all.back().attempt);
    }
    std::vector<CompileIndex> of_tracker(compiles_.size(), kNoCompile);
    for (CompileIndex i = 0; i < compiles_.size(); ++i) {
      if (!parts_[i].empty()) continue;
      Compile compile = compiles_[i];
      if (auto siblings = known.find(compile.episode); siblings != known.end()) {
        // An attempt that was not seen, of a compile that edges know.
        compile.episode = siblings->second;
        if (!attempts.emplace(compile.episode, compile.attempt).second) continue;
      }
      of_tracker[i] = static_cast<CompileIndex>(all.size());
      all.push_back(compile);
    }
    for (std::size_t i = 0; i < answers_.size(); ++i) {
      CompileIndex& compile = answers_[i].compile;
      if (moved_[i] != kNoIndex) {
        compile = of_exact[moved_[i]];
      } else if (compile != kNoCompile) {
        compile = of_tracker[compile];
      }
    }
    compiles_ = std::move(all);
  }

  const Recording& recording_;
  const Spans& spans_;
  const ExactCompiles& exact_;
  std::vector<Compile>& compiles_;
  std::vector<Answer>& answers_;
  std::map<std::pair<std::size_t, TraceId>, std::vector<std::uint32_t>> by_id_;
  std::vector<Seen> facts_;                        // by exact compile
  std::vector<std::vector<std::uint32_t>> parts_;  // by compile: the exact ones that are it
  std::vector<std::uint32_t> moved_;               // by sample: the exact compile it is in
  std::uint32_t first_episode_ = 0;
};

}  // namespace

void merge_exact(const Recording& recording, const Spans& spans, const ExactCompiles& exact,
                 std::vector<Compile>& compiles, std::vector<Answer>& answers) {
  if (exact.all().empty()) return;
  Merge(recording, spans, exact, compiles, answers).run();
}

}  // namespace dynprof
