#include "user/torch/open_phases.h"

#include <algorithm>

namespace dynprof {
namespace {

constexpr std::size_t kMaxOpen = 256;  // torch's own stays below 30

}  // namespace

void OpenPhases::set(const std::vector<StringId>& names) {
  open_.clear();
  for (StringId name : names) open_.push_back({0, name});
}

std::size_t OpenPhases::drop_ended(std::size_t listed) {
  if (open_.size() <= listed + 1) return 0;
  const std::size_t lost = open_.size() - listed;
  open_.resize(listed);
  return lost;
}

bool OpenPhases::begin(std::uint64_t frame, StringId name) {
  const bool room = open_.size() < kMaxOpen;
  if (!room) open_.erase(open_.begin());
  open_.push_back({frame, name});
  return room;
}

std::optional<OpenPhases::Ended> OpenPhases::end(std::uint64_t frame, StringId name) {
  auto found = std::find_if(open_.rbegin(), open_.rend(), [&](const Phase& phase) {
    return frame && phase.frame ? phase.frame == frame : phase.name == name;
  });
  if (found == open_.rend()) return std::nullopt;
  Ended ended;
  ended.depth = static_cast<std::size_t>(open_.rend() - found);
  ended.name = found->name;
  ended.lost = open_.size() - ended.depth;
  open_.resize(ended.depth - 1);
  return ended;
}

}  // namespace dynprof
