// One record per GPU with what the driver says about it. Used by the worker only, outside CUPTI's
// callbacks: asking the driver from within one can deadlock.
#pragma once

#include <cstdint>

namespace dynprof_cupti {

void note_device(std::uint32_t device);  // something ran on it
void forget_devices();                   // a new session: tell about each again
void replay_devices();                   // a new profiler, the same session
void send_new_devices();                 // appends the records still due

}  // namespace dynprof_cupti
