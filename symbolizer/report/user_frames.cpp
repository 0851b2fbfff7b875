#include "symbolizer/report/user_frames.h"

#include <algorithm>
#include <string_view>

#include "symbolizer/attribution/user_packages.h"

namespace dynprof {

bool is_inductor_file(std::string_view file) {
  constexpr std::size_t kHash = 40;
  if (!file.ends_with(".py") && !file.ends_with(".so")) return false;
  const std::string_view name = file.substr(file.rfind('/') + 1);
  const std::string_view stem = name.substr(0, name.find('.'));
  return name.size() < file.size() && stem.size() >= kHash &&
         std::all_of(stem.begin(), stem.end(),
                     [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); });
}

// Code that came with Python or was installed, or that torch made: not what a user would change.
bool is_user_file(std::string_view file, std::span<const std::string> packages) {
  if (is_in_package(file, packages)) return true;
  if (file.empty() || file.front() == '<' || is_inductor_file(file)) return false;
  for (std::string_view part :
       {"/site-packages/", "/dist-packages/", "/lib/python3", "/torchinductor_", "/torch/_",
        "/torch/nn/", "/torch/fx/", "/torch/utils/", "/torch/autograd/", "/torch/optim/"}) {
    if (file.find(part) != std::string_view::npos) return false;
  }
  return true;
}

std::vector<FrameId> innermost_user_frames(const Tables& tables, const ResolvedFrames& frames,
                                           std::span<const std::string> packages) {
  std::vector<bool> is_user(frames.size(), false);
  for (FrameId id = 0; id < frames.size(); ++id) {
    is_user[id] = frames[id].kind == FrameKind::kPython &&
                  frames[id].unreadable == Unreadable::kNo && !frames[id].generated &&
                  is_user_file(frames[id].file, packages);
  }
  std::vector<FrameId> innermost(tables.stacks.size(), 0);
  for (StackId id = 1; id < tables.stacks.size(); ++id) {
    const StackNode& node = tables.stacks[id];
    innermost[id] = is_user[node.frame] ? node.frame
                    : node.caller < id  ? innermost[node.caller]
                                        : 0;
  }
  return innermost;
}

}  // namespace dynprof
