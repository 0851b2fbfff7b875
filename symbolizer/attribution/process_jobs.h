// Child processes as work: g++ with the cc1plus, as, collect2 and ld that it starts is one job, for one kernel
// or for something that is done once. docs/concepts/process-tree.md has the rules.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "symbolizer/attribution/process_purpose.h"
#include "symbolizer/attribution/process_tree.h"

namespace dynprof {

struct ProcessJob {
  ProcessIndex root = 0;
  Purpose purpose = Purpose::kOther;
  CompileIndex compile = kNoCompile;
  // The kernel it compiles, by the name that Inductor gave it: "cpp_fused_add_mul_0". "": not known.
  std::string kernel;
  std::uint64_t processes = 0;
  std::uint64_t cpu_ns = 0;
  std::uint64_t peak_bytes = 0;  // of its largest process; 0: not known
};

class ProcessJobs {
 public:
  ProcessJobs(const Attribution& attribution, const ProcessTree& tree);

  // By the begin of their roots.
  const std::vector<ProcessJob>& all() const { return jobs_; }
  Purpose purpose(ProcessIndex process) const { return jobs_[job_of_[process]].purpose; }
  const ProcessJob& of(ProcessIndex process) const { return jobs_[job_of_[process]]; }

  // How long some one-off job of the compile ran while the compile was open; jobs that ran at the same time count
  // once. With the purposes that this was for, the longest first: several at once count for each.
  struct OneOff {
    std::uint64_t wall_ns = 0;
    std::vector<std::pair<Purpose, std::uint64_t>> by_purpose;
  };
  OneOff one_off(CompileIndex compile) const;

 private:
  const Attribution& attribution_;
  const ProcessTree& tree_;
  std::vector<ProcessJob> jobs_;
  std::vector<std::uint32_t> job_of_;                   // by ProcessIndex
  std::vector<std::vector<std::uint32_t>> one_off_of_;  // by CompileIndex: jobs
};

}  // namespace dynprof
