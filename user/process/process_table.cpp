#include "user/process/process_table.h"

namespace dynprof {

FollowedProcess* ProcessTable::find(pid_t pid) {
  const auto at = processes_.find(pid);
  return at == processes_.end() ? nullptr : &at->second;
}

const FollowedProcess* ProcessTable::find(pid_t pid) const {
  const auto at = processes_.find(pid);
  return at == processes_.end() ? nullptr : &at->second;
}

FollowedProcess& ProcessTable::follow(pid_t pid, pid_t parent) {
  const auto [at, added] = processes_.try_emplace(pid, pid, parent, options_.children);
  if (added && !options_.command_lines) at->second.leave_out_command_line();
  if (added && !options_.user_packages.empty())
    at->second.take_as_user_code(options_.user_packages);
  return at->second;
}

FollowedProcess& ProcessTable::follow_at_begin(pid_t pid, pid_t parent) {
  there_.emplace_back(pid, parent);
  return follow(pid, parent);
}

void ProcessTable::forked(pid_t child, pid_t parent, KernelSide& kernel) {
  processes_.erase(child);  // an older process of that number
  pending_children_.forget(child);
  follow(child, parent);
  inherit(parent, kernel);
  if (processes_.contains(parent)) pending_children_.add(child, parent);
}

void ProcessTable::inherit(pid_t child, KernelSide& kernel) {
  const pid_t parent = pending_children_.take_parent(child);
  if (parent == 0) return;
  const FollowedProcess* from = find(parent);
  FollowedProcess* to = find(child);
  if (from && to) to->inherit(*from, kernel);
}

void ProcessTable::image_ends(pid_t pid, KernelSide& kernel) {
  for (const pid_t child : pending_children_.of(pid)) inherit(child, kernel);
  pending_children_.forget(pid);
}

}  // namespace dynprof
