#include "symbolizer/attribution/process_jobs.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "symbolizer/attribution/process_command.h"
#include "symbolizer/base/text.h"

namespace dynprof {
namespace {

constexpr std::string_view kLibrary = ".so";

// Kernels by the hash that their source file is named by.
std::unordered_map<std::string_view, std::string> kernels_by_hash(
    const std::vector<GeneratedCopy>& files) {
  std::unordered_map<std::string_view, std::string> kernels;
  for (const GeneratedCopy& file : files) {
    if (file.kind != "kernel_source" || file.kernel.empty()) continue;
    if (const std::string_view hash = inductor_hash(file.origin); !hash.empty())
      kernels.emplace(hash, file.kernel);
  }
  return kernels;
}

}  // namespace

ProcessJobs::ProcessJobs(const Attribution& attribution, const ProcessTree& tree)
    : attribution_(attribution), tree_(tree), one_off_of_(attribution.compiles().size()) {
  const Tables& tables = attribution.recording().tables();
  const std::vector<ChildProcess>& all = tree.all();
  const auto command = [&](const ChildProcess& child) -> std::string_view {
    return tables.strings[child.images.back().command_line];
  };
  // A probe is compiled, and then loaded by a Python of its own: only the latter says so.
  std::set<std::string_view> probes;
  for (const ChildProcess& child : all) {
    const std::string_view library = probed_library(command(child));
    if (!library.empty()) probes.insert(library.substr(0, library.size() - kLibrary.size()));
  }
  const auto kernels = kernels_by_hash(attribution.generated_copies());
  for (ProcessIndex i = 0; i < all.size(); ++i) {
    const ChildProcess& child = all[i];
    const std::string_view line = command(child);
    Purpose purpose = purpose_of(line, base_name(tables.strings[child.images.back().exe]));
    std::string_view source;
    if (const auto sources = sources_of(line); !sources.empty()) source = sources.front();
    if (purpose == Purpose::kKernel && probes.contains(source.substr(0, source.rfind('.'))))
      purpose = Purpose::kIsaProbe;
    // A process is part of what its parent does, unless it says otherwise or works for another compile.
    if (child.parent != kNoChild && child.rule == JoinRule::kParent) {
      const ProcessJob& of_parent = jobs_[job_of_[child.parent]];
      if (of_parent.compile == child.compile &&
          (purpose == Purpose::kOther || purpose == of_parent.purpose ||
           of_parent.purpose == Purpose::kIsaProbe)) {
        job_of_.push_back(job_of_[child.parent]);
        ProcessJob& job = jobs_[job_of_.back()];
        ++job.processes;
        job.cpu_ns += child.cpu_ns;
        job.peak_bytes = std::max(job.peak_bytes, child.peak_bytes);
        continue;
      }
    }
    ProcessJob job;
    job.root = i;
    job.purpose = purpose;
    job.compile = child.compile;
    job.processes = 1;
    job.cpu_ns = child.cpu_ns;
    job.peak_bytes = child.peak_bytes;
    if (purpose == Purpose::kKernel) {
      const auto known = kernels.find(inductor_hash(source));
      if (known != kernels.end()) job.kernel = known->second;
    }
    job_of_.push_back(static_cast<std::uint32_t>(jobs_.size()));
    if (is_one_off(purpose) && child.compile != kNoCompile)
      one_off_of_[child.compile].push_back(job_of_.back());
    jobs_.push_back(std::move(job));
  }
}

ProcessJobs::OneOff ProcessJobs::one_off(CompileIndex index) const {
  const Compile& compile = attribution_.compiles()[index];
  std::vector<Interval> all;
  std::map<Purpose, std::vector<Interval>> by_purpose;
  for (std::uint32_t job : one_off_of_[index]) {
    const ChildProcess& root = tree_.all()[jobs_[job].root];
    const Interval ran{std::max(root.begin_ns, compile.first_ns),
                       std::min(root.end_ns, compile.last_ns)};
    if (ran.first >= ran.second) continue;
    all.push_back(ran);
    by_purpose[jobs_[job].purpose].push_back(ran);
  }
  OneOff sums{union_ns(all), {}};
  for (auto& [purpose, intervals] : by_purpose)
    sums.by_purpose.emplace_back(purpose, union_ns(intervals));
  std::stable_sort(sums.by_purpose.begin(), sums.by_purpose.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  return sums;
}

}  // namespace dynprof
