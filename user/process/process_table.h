// The processes of a recording: the targets, their children, and whatever a sample came from.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "user/process/followed_process.h"
#include "user/process/pending_children.h"
#include "user/target/known_images.h"

namespace dynprof {

class ProcessTable {
 public:
  using Map = std::map<pid_t, FollowedProcess>;

  // `kernel` outlives it.
  ProcessTable(const FollowOptions& options, KernelSide& kernel)
      : options_(options), kernel_(kernel) {}

  Map& all() { return processes_; }
  const Map& all() const { return processes_; }
  // Null: not followed.
  FollowedProcess* find(pid_t pid);
  const FollowedProcess* find(pid_t pid) const;
  // The process with that id, new or known.
  FollowedProcess& follow(pid_t pid, pid_t parent);
  // Found when the recording began, and its parent then; see there().
  FollowedProcess& follow_at_begin(pid_t pid, pid_t parent);
  const std::vector<std::pair<pid_t, pid_t>>& there() const { return there_; }
  void erase(pid_t pid) { processes_.erase(pid); }

  // It was sampled at `time_ns`: if a look at it is due, it is looked at before the others, because it runs.
  void sampled(const FollowedProcess& process, std::uint64_t time_ns);
  // The next one of these that is still followed; null: none.
  FollowedProcess* take_sampled();

  // The child copies what is known of its parent when that is needed (inherit) or about to go (image_ends).
  void forked(pid_t child, pid_t parent);
  void inherit(pid_t child);
  // What this process knew is about to go (an exec, an exit): its children copy it now, it copies nothing.
  void image_ends(pid_t pid);

 private:
  FollowOptions options_;
  KernelSide& kernel_;
  KnownImages images_;
  Map processes_;
  PendingChildren pending_children_;
  std::set<pid_t> sampled_;
  std::vector<std::pair<pid_t, pid_t>> there_;
};

}  // namespace dynprof
