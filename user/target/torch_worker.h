// What torch starts a process for, from its command line.
#pragma once

#include <sys/types.h>

#include "symbolizer/attribution/process_purpose.h"

namespace dynprof {

// kWorker: a compile worker, which runs no code that Dynamo compiled and starts no work on a GPU. A machine with many CPUs
// has one for each, 32 at most (torch/_inductor/config.py, compile_threads).
Purpose read_purpose(pid_t pid);

}  // namespace dynprof
