#include "symbolizer/report/user_frames.h"

#include <algorithm>
#include <string_view>

#include "symbolizer/attribution/user_packages.h"

namespace dynprof {
namespace {

// Inductor's files, wherever its cache is: "ab/cab3…py", a hash of 52 characters in a folder of its first.
bool is_inductor_file(std::string_view file) {
  constexpr std::size_t kHash = 40;
  std::size_t slash = file.rfind('/');
  if (slash == std::string_view::npos || !file.ends_with(".py")) return false;
  std::string_view stem = file.substr(slash + 1, file.size() - slash - 4);
  return stem.size() >= kHash && std::all_of(stem.begin(), stem.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
         });
}

// Code that came with Python or was installed, or that torch made: not what a user would change.
bool is_user_file(std::string_view file) {
  if (file.empty() || file.front() == '<' || is_inductor_file(file)) return false;
  for (std::string_view part :
       {"/site-packages/", "/dist-packages/", "/lib/python3", "/torchinductor_", "/torch/_",
        "/torch/nn/", "/torch/fx/", "/torch/utils/", "/torch/autograd/", "/torch/optim/"}) {
    if (file.find(part) != std::string_view::npos) return false;
  }
  return true;
}

}  // namespace

std::vector<FrameId> innermost_user_frames(const Tables& tables, const ResolvedFrames& frames,
                                           std::span<const std::string> packages) {
  std::vector<bool> is_user(frames.size(), false);
  for (FrameId id = 0; id < frames.size(); ++id) {
    is_user[id] = frames[id].kind == FrameKind::kPython &&
                  frames[id].unreadable == Unreadable::kNo && !frames[id].generated &&
                  (is_user_file(frames[id].file) || is_in_package(frames[id].file, packages));
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
