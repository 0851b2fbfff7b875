// What Python's threading module calls its threads: the operating system has these names only from Python 3.14 on.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "user/live/target_view.h"

namespace dynprof {

// By threading.get_ident(), which is the pthread_t. At most 1024 threads. Threads that Python did not start
// (Dummy-3) have no name of their own and are left out.
std::map<std::uint64_t, std::string> python_thread_names(TargetView& view);

}  // namespace dynprof
