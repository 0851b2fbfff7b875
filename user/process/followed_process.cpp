#include "user/process/followed_process.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace dynprof {
namespace {

// A process that is no Python now may be one soon: a shell that will exec it, an interpreter that is
// starting. Looked at often at first, then rarely, then no more.
constexpr std::uint64_t kFirstLookNs = 5'000'000;
constexpr std::uint64_t kForkLookNs = 20'000'000;
constexpr std::uint64_t kSlowestLookNs = 1'000'000'000;
constexpr unsigned kPythonLooks = 16;
constexpr std::uint64_t kNoDescriptorsLookNs = 1'000'000'000;

std::uint64_t backoff(unsigned looks) {
  return std::min(kFirstLookNs << std::min(looks, 10U), kSlowestLookNs);
}

}  // namespace

FollowedProcess::FollowedProcess(pid_t pid, pid_t parent, const FollowOptions& options,
                                 KernelSide& kernel, KnownImages& images)
    : identity_(pid, parent, options.command_lines),
      python_(pid, kernel, schedule_, images),
      native_(pid, python_),
      torch_(identity_, python_, schedule_, kernel.may_probe()),
      entry_(pid,
             (options.children ? DP_PROCESS_FOLLOW_FORKS : 0) |
                 (options.gpu_work ? DP_PROCESS_GPU_WORK : 0),
             kernel, python_, native_, torch_),
      tracer_({identity_, python_, torch_, entry_, kernel, options.user_packages,
               options.record_functions, options.all_user_lines}) {
  // Most children exec, or end, before a look is worth its time.
  if (parent != 0) schedule_.next_ns = identity_.first_seen_ns() + kForkLookNs;
}

void FollowedProcess::inherit(const FollowedProcess& parent) {
  native_.inherit(parent.native_);
  python_.inherit(parent.python_);
  if (!parent.python_) return;
  torch_.inherit(parent.torch_);
  schedule_.next_ns = torch_.torch().complete ? 0 : 1;
  // The kernel side made its own copy at the fork; by now the child may be another program.
}

void FollowedProcess::forget_image(std::uint64_t now_ns) {
  tracer_.forget();
  torch_.forget();
  native_.forget();
  python_.forget();
  identity_.changed();
  identity_.set_no_compile_at_start(true);  // we follow it from its first instruction
  schedule_ = {.next_ns = now_ns + kFirstLookNs};
}

Result<void> FollowedProcess::discover(std::uint64_t now_ns) {
  if (!python_) {
    PythonDiscovery details;
    auto found = python_.find(details);
    if (!found) {
      schedule_.looks++;
      const bool again = details.fault == PythonFault::kNotPython ||
                         details.fault == PythonFault::kStarting ||
                         details.fault == PythonFault::kNoThreadState;
      schedule_.next_ns =
          again && schedule_.looks < kPythonLooks ? now_ns + backoff(schedule_.looks) : 0;
      if (details.no_descriptors) {
        // Others will be closed; until then nothing said of this process holds.
        schedule_.next_ns = now_ns + kNoDescriptorsLookNs;
        waits_for_descriptors_ = true;
        return found;
      }
      fault_ = details.fault;
      if (fault_ == PythonFault::kStarting) identity_.set_no_compile_at_start(true);
      return found;
    }
    fault_ = PythonFault::kNone;
    identity_.changed();
    // Before its first sample: by then it may have ended.
    if (native_.space()) native_.knows_eval_loop();
  }
  torch_.look(now_ns);
  schedule_.looks++;
  return entry_.update();
}

std::uint64_t FollowedProcess::next_look_ns() const {
  return schedule_.marker_seen && !torch_.torch().complete ? 1 : schedule_.next_ns;
}

void FollowedProcess::describe(RecordingWriter& writer) {
  identity_.describe(python_ ? python_.runtime().version : "", torch_.torch().version, writer);
}

std::string FollowedProcess::take_problem() {
  if (std::string problem = native_.take_problem(); !problem.empty()) return problem;
  if (waits_for_descriptors_ && !python_ && !std::exchange(told_descriptors_, true)) {
    return fmt::format(
        "process {} is examined again every second: too many files are open (raise ulimit -Hn)",
        pid());
  }
  return tracer_.take_problem();
}

}  // namespace dynprof
