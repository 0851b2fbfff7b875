// The recording's ids of the threads of one process.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <unordered_map>

#include "symbolizer/recording/writer.h"

namespace dynprof {

class ThreadIds {
 public:
  explicit ThreadIds(pid_t pid) : pid_(pid) {}

  ThreadId of(pid_t tid, RecordingWriter& writer);
  bool empty() const { return ids_.empty(); }
  // The name of the main thread where /proc no longer has it.
  void set_last_known_comm(std::string_view comm) { last_known_comm_ = comm; }

 private:
  pid_t pid_;
  std::string last_known_comm_;
  std::unordered_map<pid_t, ThreadId> ids_;
};

}  // namespace dynprof
