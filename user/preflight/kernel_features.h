// The feature that a kernel which refused the BPF programs lacks. Probed, never concluded from
// its version: distributions add and remove features.
#pragma once

#include <string>

namespace dynprof {

// "BPF has no helper bpf_task_pt_regs (Linux 5.15)", …: the first that is missing; "" if none. Loads small
// programs and maps, which requires the rights to record.
std::string missing_kernel_feature();

}  // namespace dynprof
