// How far the compiles are that are open in a process: since when, in which phases, at which line of the user's and
// at which node of their graph. Read once when a recording begins and once when it ends: the begin of such a compile
// may be long before the recording, and its end does not come.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "symbolizer/recording/writer.h"
#include "user/live/graph_position.h"
#include "user/live/user_code.h"
#include "user/target/python_runtime.h"
#include "user/target/torch_threads.h"
#include "user/torch/thread_ids.h"

namespace dynprof {

struct ProgressReading {
  std::uint64_t time_ns = 0;
  std::uint64_t begun_ns = 0;  // 0: not known
  pid_t tid = 0;
  TorchIds ids;
  std::vector<std::string> phases;  // torch's names, outermost first
  std::optional<LineUse> use;       // of `line`; none: it is at no user code
  UserLine line;                    // the innermost of the user's own
  GraphPosition at;                 // 0 of 0: not known
};

// `packages`: see own_line(). A thread that does not stand still is read again for at most `patience`, all
// threads together.
std::vector<ProgressReading> read_compile_progress(const PythonRuntime& runtime,
                                                   const std::vector<std::string>& packages,
                                                   std::chrono::milliseconds patience);

void write_compile_progress(const std::vector<ProgressReading>& readings, ThreadIds& threads,
                            RecordingWriter& writer);

}  // namespace dynprof
