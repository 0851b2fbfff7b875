// Reads other processes' memory by a BPF program, in place: bpf/remote_memory.bpf.c says how, and why.
#pragma once

#include <cstdint>
#include <memory>

#include "symbolizer/base/result.h"
#include "user/kernel/direct_map.h"
#include "user/kernel/pid_namespace.h"
#include "user/target/in_place_reader.h"

namespace dynprof {

// An error: this kernel refuses the program. Not without a direct map.
Result<std::shared_ptr<InPlaceReader>> open_remote_pages(const DirectMap& direct_map,
                                                         const PidNamespace& ours);

}  // namespace dynprof
