// The lines of user code and the nn.Modules that a generated kernel is made from: by what the wrapper says of the kernel
// (kernel_plan.h), the lines of the nodes of its graph and the modules of the captured graph's (graph_text.h). Texts
// come from the target.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "symbolizer/attribution/generated_copies.h"

namespace dynprof {

// The file among these with the nodes of the captured graph of a wrapper's compile; nullptr: none.
const GeneratedCopy* captured_nodes(const std::vector<GeneratedCopy>& files,
                                    const GeneratedCopy& wrapper);

struct KernelSource {
  // "/tmp/model.py:12 in forward", in the order of the graph, each once; empty: not known.
  std::vector<std::string> lines;
  std::vector<std::string> modules;  // "Transformer.layers.0", the same; empty: not known
};

class KernelSources {
 public:
  KernelSources(const Tables& tables, const std::vector<GeneratedCopy>& files);

  // `backward`: of that direction.
  const KernelSource& of(std::int32_t pid, const TraceId& id, bool backward,
                         const std::string& kernel) const;

 private:
  struct Key {
    std::int32_t pid;
    TraceId id;
    bool backward;
    std::string kernel;
    auto operator<=>(const Key&) const = default;
  };
  std::map<Key, KernelSource> sources_;
};

}  // namespace dynprof
