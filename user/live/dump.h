// Where every Python thread of a live process stands, and what it compiles: read once, from outside,
// without stopping it and without BPF. Whatever keeps moving is read again for half a second, then
// shown as moved.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "symbolizer/base/result.h"
#include "symbolizer/recording/model.h"
#include "user/live/compile_now.h"
#include "user/live/graph_position.h"
#include "user/live/user_code.h"

namespace dynprof {

struct DumpFrame {
  std::string function;  // co_qualname; co_name on 3.10
  std::string file;
  std::int32_t line = 0;  // 0: this instruction has none
  std::int32_t first_line = 0;
  Unreadable unreadable = Unreadable::kNo;  // not kNo: all of the above is void
};

struct ThreadDump {
  pid_t tid = 0;
  std::string name;               // of the threading module; "" when it has none there
  std::string comm;               // the kernel's, 15 bytes
  char state = '?';               // of /proc/PID/stat: R, S, D, T, ...
  std::vector<DumpFrame> frames;  // leaf first
  bool truncated = false;         // there are more below
  bool consistent = true;  // false: it moved while it was read, what is shown may be a mixture
  std::optional<CompileNow> compile;
  UserCode user_code;
  GraphPosition graph;  // of the graph that Inductor lowers; node 0: none, or not known
  bool waits_for_compile_lock = false;
};

struct ProcessDump {
  pid_t pid = 0;
  std::string command;  // as started
  std::string python;
  std::optional<std::string> torch;  // its version; nullopt: not imported
  std::vector<ThreadDump> threads;   // those that compile first, then those that wait to
  std::optional<pid_t> compile_lock_holder;
  std::size_t other_threads = 0;    // without a Python state: OpenMP's pool and the like
  std::size_t elsewhere = 0;        // threads of sub-interpreters, which are left out
  std::size_t threads_dropped = 0;  // beyond the limit of 4,096
  std::vector<std::string> problems;
  double seconds = 0;  // that reading took
};

Result<ProcessDump> dump_process(pid_t pid);

}  // namespace dynprof
