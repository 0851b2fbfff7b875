// What a kernel that refused our BPF programs lacks of what they are made of. Probed, never concluded from
// its version: distributions add and remove features.
#pragma once

#include <string>

namespace dynprof {

// "BPF has no helper bpf_task_pt_regs (Linux 5.15)", …: the first that is missing; "" if none is. Tries small
// programs and maps, which it may load only with the rights to record.
std::string missing_kernel_feature();

}  // namespace dynprof
