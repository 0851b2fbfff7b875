// Which compile a run of a compiled backward belongs to. torch runs it as an autograd node written in
// Python: torch::autograd::PyNode holds an instance of CompiledFunctionBackward, a class made per
// compiled graph, whose _forward_cls keeps _lazy_backward_info.saved_compile_context. Read in torch 2.6
// to 2.14, tested with 2.13.
#pragma once

#include <cstdint>
#include <string>

#include "bpf/events.h"
#include "user/target/remote_values.h"

namespace dynprof {

// The name of a run of nodes with instances of this class, in torch.profiler's words, with the trace id
// where torch still knows it ("CompiledFunctionBackward 0/0"; none for one that came out of a cache);
// "" for a class that runs nothing compiled.
std::string backward_run_name(RemoteValues& values, const dp_torch_layout& torch,
                              std::uint64_t none, std::uint64_t type);

}  // namespace dynprof
