// The lines of user code that a generated kernel is made from: by what the wrapper says of the kernel (kernel_plan.h) and
// the lines of the nodes of its graph (graph_text.h). Texts come from the target.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "symbolizer/attribution/generated_copies.h"

namespace dynprof {

class KernelSources {
 public:
  KernelSources(const Tables& tables, const std::vector<GeneratedCopy>& files);

  // "/tmp/model.py:12 in forward", in the order of the graph, each once; empty: not known. `backward`: of that direction.
  const std::vector<std::string>& of(std::int32_t pid, const TraceId& id, bool backward,
                                     const std::string& kernel) const;

 private:
  struct Key {
    std::int32_t pid;
    TraceId id;
    bool backward;
    std::string kernel;
    auto operator<=>(const Key&) const = default;
  };
  std::map<Key, std::vector<std::string>> lines_;
};

}  // namespace dynprof
