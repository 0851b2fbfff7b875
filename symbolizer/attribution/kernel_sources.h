// The lines of user code that a generated kernel is made from. Inductor writes above the kernel, in the wrapper, which
// nodes of its graph it fused (of Triton kernels; torch 2.6 to 2.15), and the text of that graph has the line of each
// node. Texts come from the target.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "symbolizer/attribution/generated_copies.h"

namespace dynprof {

struct SourceLine {
  std::string file;
  std::int32_t line = 0;
  std::string function;
  bool operator==(const SourceLine&) const = default;
};

// Names of graph nodes by kernel, from a wrapper.
std::map<std::string, std::vector<std::string>> kernel_nodes(std::string_view wrapper);
// The line of each node, from a graph that torch printed with its comments.
std::map<std::string, SourceLine> node_lines(std::string_view graph);

class KernelSources {
 public:
  KernelSources(const Tables& tables, const std::vector<GeneratedCopy>& files);

  // In the order of the graph, each once; empty: not known. `direction` as in GeneratedCopy.
  const std::vector<SourceLine>& of(std::int32_t pid, const TraceId& id, bool backward,
                                    const std::string& kernel) const;

 private:
  struct Key {
    std::int32_t pid;
    TraceId id;
    bool backward;
    std::string kernel;
    auto operator<=>(const Key&) const = default;
  };
  std::map<Key, std::vector<SourceLine>> lines_;
};

}  // namespace dynprof
