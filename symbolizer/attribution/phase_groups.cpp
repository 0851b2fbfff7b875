#include "symbolizer/attribution/phase_groups.h"

#include <numeric>

#include "symbolizer/attribution/exact_compiles.h"
#include "symbolizer/attribution/torch_history.h"

namespace dynprof {
namespace {

constexpr PhaseGroupName kNames[kPhaseGroups] = {
    {"dynamo", "Dynamo"},       {"aot", "AOTAutograd"},
    {"inductor", "Inductor"},   {"kernel", "C++/Triton compilers"},
    {"autotune", "autotuning"}, {"cache", "caches"},
    {"other", "other work"},
};

}  // namespace

const PhaseGroupName& phase_group_name(PhaseGroup group) {
  return kNames[static_cast<std::size_t>(group)];
}

PhaseGroup phase_group(Phase phase) {
  switch (phase) {
    case Phase::kDynamo:
    case Phase::kGuards:
      return PhaseGroup::kDynamo;
    case Phase::kAotAutograd:
      return PhaseGroup::kAot;
    case Phase::kInductor:
      return PhaseGroup::kInductor;
    case Phase::kKernelCompile:
    case Phase::kWait:
      return PhaseGroup::kKernel;
    case Phase::kAutotune:
      return PhaseGroup::kAutotune;
    case Phase::kCache:
      return PhaseGroup::kCache;
    default:
      return PhaseGroup::kOther;
  }
}

CacheAnswer cache_answer(std::uint64_t fx_hits, std::uint64_t fx_misses, std::uint64_t aot_hits,
                         std::uint64_t aot_misses) {
  if (fx_misses > 0 || aot_hits + fx_hits == 0) return CacheAnswer::kNone;
  if (aot_hits > 0 && aot_misses == 0) return CacheAnswer::kAotAutograd;
  return fx_hits > 0 ? CacheAnswer::kFxGraph : CacheAnswer::kNone;
}

std::uint64_t GroupTimes::whole() const {
  return std::accumulate(ns.begin(), ns.end(), std::uint64_t{0});
}

void GroupTimes::add(Phase phase, std::uint64_t more_ns) {
  ns[static_cast<std::size_t>(phase_group(phase))] += more_ns;
}

void GroupTimes::add(const GroupTimes& other) {
  for (std::size_t i = 0; i < kPhaseGroups; ++i) ns[i] += other.ns[i];
  kernel_in_inductor |= other.kernel_in_inductor;
}

void GroupTimes::answer_from(CacheAnswer answer) {
  auto move = [&](PhaseGroup group) {
    std::uint64_t& from = ns[static_cast<std::size_t>(group)];
    ns[static_cast<std::size_t>(PhaseGroup::kCache)] += from;
    from = 0;
  };
  if (answer == CacheAnswer::kNone) return;
  move(PhaseGroup::kInductor);
  if (answer != CacheAnswer::kAotAutograd) return;
  move(PhaseGroup::kAot);
  move(PhaseGroup::kOther);
}

void GroupTimes::join_kernel() {
  std::uint64_t& kernel = ns[static_cast<std::size_t>(PhaseGroup::kKernel)];
  std::uint64_t& inductor = ns[static_cast<std::size_t>(PhaseGroup::kInductor)];
  inductor += kernel;
  kernel = 0;
  kernel_in_inductor = inductor > 0;
}

GroupTimes group_times(const Attribution& attribution, CompileIndex compile) {
  GroupTimes times;
  const PastCompile* past = attribution.past(compile);
  if (const ExactCompile* timing = attribution.timing(compile)) {
    for (std::size_t i = 0; i < timing->phase_ns.size(); ++i) {
      times.add(static_cast<Phase>(i), timing->phase_ns[i]);
    }
  } else if (past != nullptr) {
    for (const PastPhase& phase : past->phases) {
      for (std::size_t i = 0; i < static_cast<std::size_t>(Phase::kCount); ++i) {
        if (phase.name != phase_text(static_cast<Phase>(i))) continue;
        times.add(static_cast<Phase>(i), static_cast<std::uint64_t>(phase.wall_s * 1e9));
      }
    }
  }
  if (past != nullptr && past->caches) {
    const PastCaches& caches = *past->caches;
    times.answer_from(
        cache_answer(caches.fx_hits, caches.fx_misses, caches.aot_hits, caches.aot_misses));
  }
  if (attribution.timing(compile) == nullptr) times.join_kernel();
  return times;
}

}  // namespace dynprof
