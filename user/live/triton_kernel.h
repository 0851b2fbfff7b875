// The Triton kernel that a thread compiles or tunes, from locals of Triton's and Inductor's own frames:
//   triton/compiler/compiler.py                   compile                     src: an ASTSource; its fn
//   triton/runtime/jit.py                         JITFunction.run             self
//   triton/runtime/autotuner.py                   Autotuner.run               self.fn
//   torch/_inductor/runtime/triton_heuristics.py  CachingAutotuner, several   self.fn
// Read in Triton 3.9 and torch 2.15; the first three tested with Triton 3.9.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "user/live/target_view.h"
#include "user/target/snapshot_memory.h"

namespace dynprof {

struct TritonKernel {
  std::string name;  // of the function with @triton.jit: "add_kernel"
  // Differs between two compilations that follow each other; 0: nothing is compiled (a configuration is tried).
  std::uint64_t compilation = 0;
};

// nullopt: the thread neither compiles nor tunes, its frames did not stand still until the deadline, or the kernel's
// name could not be read. `pages` is what `view` reads everything but stacks through; it is renewed.
std::optional<TritonKernel> read_triton_kernel(TargetView& view, SnapshotMemory& pages,
                                               std::uint64_t tstate, Deadline deadline);

}  // namespace dynprof
