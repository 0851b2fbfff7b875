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
  return processes_.try_emplace(pid, pid, parent, options_, kernel_, images_).first->second;
}

FollowedProcess& ProcessTable::follow_at_begin(pid_t pid, pid_t parent) {
  there_.emplace_back(pid, parent);
  return follow(pid, parent);
}

void ProcessTable::sampled(const FollowedProcess& process, std::uint64_t time_ns) {
  const std::uint64_t due_ns = process.next_look_ns();
  if (due_ns != 0 && due_ns <= time_ns) sampled_.insert(process.pid());
}

FollowedProcess* ProcessTable::take_sampled() {
  while (!sampled_.empty()) {
    const pid_t pid = sampled_.extract(sampled_.begin()).value();
    if (FollowedProcess* process = find(pid)) return process;
  }
  return nullptr;
}

void ProcessTable::forked(pid_t child, pid_t parent) {
  processes_.erase(child);  // an older process of that number
  pending_children_.forget(child);
  follow(child, parent);
  inherit(parent);
  if (processes_.contains(parent)) pending_children_.add(child, parent);
}

void ProcessTable::inherit(pid_t child) {
  const pid_t parent = pending_children_.take_parent(child);
  if (parent == 0) return;
  const FollowedProcess* from = find(parent);
  FollowedProcess* to = find(child);
  if (from && to) to->inherit(*from);
}

void ProcessTable::image_ends(pid_t pid) {
  for (const pid_t child : pending_children_.of(pid)) inherit(child);
  pending_children_.forget(pid);
}

}  // namespace dynprof
