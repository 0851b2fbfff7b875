// What every report and exporter of one recording takes. Each part is computed when it is first asked
// for, and once; only one thread may ask. More than 15 public members: one for each thing that is shared.
#pragma once

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "symbolizer/attribution/attribution.h"
#include "symbolizer/attribution/compile_lines.h"
#include "symbolizer/attribution/compile_modules.h"
#include "symbolizer/attribution/generated.h"
#include "symbolizer/attribution/gpu_work.h"
#include "symbolizer/attribution/process_jobs.h"
#include "symbolizer/attribution/process_tree.h"
#include "symbolizer/attribution/region_runs.h"
#include "symbolizer/attribution/start_up.h"
#include "symbolizer/attribution/wait_meaning.h"
#include "symbolizer/attribution/waits.h"
#include "symbolizer/profile/dynamo_profile.h"
#include "symbolizer/profile/functions.h"
#include "symbolizer/profile/operators.h"
#include "symbolizer/profile/profile.h"
#include "symbolizer/profile/stack_counts.h"
#include "symbolizer/profile/timeline.h"

namespace dynprof {

class Analysis {
 public:
  // `cpu_only`: the profile of a compile is of its samples alone, without what it waited.
  explicit Analysis(const Attribution& attribution, bool cpu_only = false)
      : attribution_(attribution), cpu_only_(cpu_only) {}
  Analysis(const Analysis&) = delete;
  Analysis& operator=(const Analysis&) = delete;

  const Attribution& attribution() const { return attribution_; }
  const Tables& tables() const { return attribution_.recording().tables(); }
  bool cpu_only() const { return cpu_only_; }

  // Each of these two goes through all samples once.
  const StackCounts& counts() const { return counts_.get(attribution_, waits()); }
  const ProcessTree& processes() const { return processes_.get(attribution_); }

  const ProcessJobs& jobs() const { return jobs_.get(attribution_, processes()); }

  const Waits& waits() const { return waits_.get(attribution_); }
  const std::vector<StartUp>& start_ups() const {
    if (!start_ups_) start_ups_ = find_start_ups(attribution_, waits());
    return *start_ups_;
  }
  const WaitMeanings& meanings() const { return meanings_.get(tables(), attribution_.frames()); }
  const Generated& generated() const { return generated_.get(attribution_); }
  const CompileLines& lines() const { return lines_.get(attribution_); }
  const CompileModules& modules() const { return modules_.get(attribution_); }
  const DynamoProfiles& traced() const { return traced_.get(attribution_); }
  const GpuWork& gpu() const { return gpu_.get(attribution_); }
  const RegionRunStats& regions() const { return regions_.get(tables()); }
  const StackIndex& stacks() const { return stacks_.get(tables()); }
  const Operators& operators() const { return operators_.get(tables(), attribution_.frames()); }
  const Functions& functions() const { return functions_.get(attribution_.frames()); }

  // What a profile of the compile is made of: its samples, and its waits unless `cpu_only`.
  std::vector<StackCount> wall_counts(CompileIndex compile) const;
  // Everything; stacks from their root.
  Profile session() const;
  // One compile alone, by wall time of its thread: the time samples stand for, and waits.
  // Stacks begin at the function of torch that compiles, as the profile that TORCH_COMPILE_CPROFILE
  // makes does.
  Profile of(CompileIndex compile) const;
  Profile inside_compile(std::span<const StackCount> counts) const;  // the same for a part of one
  // Python functions alone: time in native and kernel code is that of the Python function that called
  // it, or Functions::kNoStack's. `whole`: stacks from their root, else as inside_compile().
  Profile python_only(std::span<const StackCount> counts, bool whole) const;

 private:
  template <class T>
  class Lazy {
   public:
    template <class... Arguments>
    T& get(Arguments&&... arguments) const {
      if (!value_) value_.emplace(std::forward<Arguments>(arguments)...);
      return *value_;
    }

   private:
    mutable std::optional<T> value_;
  };
  struct Folded {
    Folded(const Analysis& analysis, bool whole, bool python_only);
    CallTree tree;
    Folder folder;
  };

  const Attribution& attribution_;
  bool cpu_only_;
  Lazy<Waits> waits_;
  Lazy<StackCounts> counts_;
  Lazy<ProcessTree> processes_;
  Lazy<ProcessJobs> jobs_;
  Lazy<WaitMeanings> meanings_;
  mutable std::optional<std::vector<StartUp>> start_ups_;
  Lazy<Generated> generated_;
  Lazy<CompileLines> lines_;
  Lazy<CompileModules> modules_;
  Lazy<DynamoProfiles> traced_;
  Lazy<GpuWork> gpu_;
  Lazy<RegionRunStats> regions_;
  Lazy<StackIndex> stacks_;
  Lazy<Functions> functions_;
  Lazy<Folded> whole_, compiles_, whole_python_, compiles_python_;
  Lazy<Operators> operators_;
};

}  // namespace dynprof
