// What would work on one process. Reads its memory and its files in /proc; changes nothing.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "user/doctor/check.h"
#include "user/gpu/gpu_process.h"
#include "user/target/python_runtime.h"

namespace dynprof {

std::vector<Check> target_checks(pid_t pid);

// Parts of it.
Check python_fault_check(const Error& why, const PythonDiscovery& details);
// `loadable`: can_load_into_python().
Check gpu_check(const CudaMappings& cuda, const Result<std::string>& loadable);
Check tracer_check(const std::string& tracer_pid);  // the field TracerPid
// Whether the arguments, each ended by a 0 byte, are those of a dynprof-bpf that records this process.
bool records(std::string_view arguments, pid_t pid);

}  // namespace dynprof
