// One session of tracing: from CUPTI's subscription to its end. Used by the worker only.
#pragma once

#include <cstdint>

namespace dynprof_cupti {

struct StartResult {
  std::uint32_t code;    // DYNPROF_GPU_ON, or why not
  std::uint32_t detail;  // see enum dynprof_gpu_code
};
// `about_to_subscribe` runs once CUPTI has been found, before it is used.
StartResult start_session(void (*about_to_subscribe)());
void stop_session();
void run_session();  // every 20 ms: hands over what has been collected

std::uint32_t session_number();
std::uint32_t cupti_version();

}  // namespace dynprof_cupti
