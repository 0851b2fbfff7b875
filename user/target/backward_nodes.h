// Which compile a run of a compiled backward belongs to. torch runs it as an autograd node written in
// Python: torch::autograd::PyNode holds an instance of CompiledFunctionBackward, a class made per
// compiled graph, whose _forward_cls keeps _lazy_backward_info.saved_compile_context. Read in torch 2.6
// to 2.15, tested with 2.11, 2.13 and 2.15.
#pragma once

#include <cstdint>
#include <string>

#include "bpf/events.h"
#include "user/target/remote_values.h"

namespace dynprof {

// The name of a run of nodes with instances of this class, in torch.profiler's words, with the trace id
// where torch still knows it ("CompiledFunctionBackward 0/0"; none before torch 2.13 for one that came out of a cache);
// "" for a class that runs nothing compiled.
std::string backward_run_name(RemoteValues& values, const dp_torch_layout& torch,
                              std::uint64_t none, std::uint64_t type);

// Where a PyNode has its instance: 0x70 in torch 2.13 and 2.15, 0x1d8 in 2.8 to 2.12, behind the metadata of its inputs. It is looked for
// in DP_NODE_WORDS words at a time; these are the first of them, the likely ones first, over and over.
std::uint16_t first_node_words();
std::uint16_t node_words_after(std::uint16_t first);

// Whether this is the class of an autograd node written in Python, compiled or not.
bool is_node_class(RemoteObjects& objects, std::uint64_t type);

}  // namespace dynprof
