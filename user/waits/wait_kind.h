// What a thread waits for, by the system call it is in.
#pragma once

#include "bpf/events.h"
#include "symbolizer/recording/wait_model.h"

namespace dynprof {

// `call` -1: in no system call. `mode`: st_mode of the file it reads or writes, 0: not known. `state`:
// the task's, 2 where it cannot be interrupted.
WaitKind wait_kind(int call, unsigned mode, unsigned state);
WaitKind wait_kind(const dp_wait_event& event);

}  // namespace dynprof
