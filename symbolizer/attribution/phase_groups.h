// The groups of phases that tables show: one definition for `report`, `compiles` and compiles.json.
// Within a compile they add up to its wall time less what nested compiles took of it.
#pragma once

#include <array>
#include <cstdint>

#include "symbolizer/attribution/attribution.h"

namespace dynprof {

enum class PhaseGroup : std::uint8_t {
  kDynamo,    // Dynamo and the guards it builds
  kAot,       // AOTAutograd
  kInductor,  // Inductor's passes, lowering and code generation
  kKernel,    // the C++ and Triton compilers, and waiting for them
  kAutotune,
  kCache,  // looking up, loading and storing
  kOther,  // a backend of another kind, CUDA graphs
  kCount
};
inline constexpr std::size_t kPhaseGroups = static_cast<std::size_t>(PhaseGroup::kCount);

struct PhaseGroupName {
  const char* column;  // of tables, and the key in compiles.json
  const char* words;   // in a sentence
};
const PhaseGroupName& phase_group_name(PhaseGroup group);
PhaseGroup phase_group(Phase phase);

// Which cache had the whole of a compile's graph.
enum class CacheAnswer : std::uint8_t { kNone, kFxGraph, kAotAutograd };
CacheAnswer cache_answer(std::uint64_t fx_hits, std::uint64_t fx_misses, std::uint64_t aot_hits,
                         std::uint64_t aot_misses);

struct GroupTimes {
  std::array<std::uint64_t, kPhaseGroups> ns{};
  // As torch itself accounts for a compile: kInductor holds the compilers' time too, kKernel is 0.
  bool kernel_in_inductor = false;

  std::uint64_t of(PhaseGroup group) const { return ns[static_cast<std::size_t>(group)]; }
  std::uint64_t whole() const;
  void add(Phase phase, std::uint64_t more_ns);
  void add(const GroupTimes& other);
  // What a cache answered was loaded, not made: the time where it would have been made is the
  // cache's.
  void answer_from(CacheAnswer answer);
  // Makes it the coarser account described above.
  void join_kernel();
};

// Wall time by exact events, else by torch's own account; all 0 where neither knows it.
GroupTimes group_times(const Attribution& attribution, CompileIndex compile);

}  // namespace dynprof
