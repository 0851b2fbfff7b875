// What a process is: its pid, parent, threads and command, and its row in the recording.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "symbolizer/recording/writer.h"
#include "user/torch/thread_ids.h"

namespace dynprof {

class ProcessIdentity {
 public:
  ProcessIdentity(pid_t pid, pid_t parent, bool keep_command_line);

  pid_t pid() const { return pid_; }
  std::uint64_t first_seen_ns() const { return first_seen_ns_; }
  ThreadIds& threads() { return threads_; }

  // An exec event, for when the process has ended before /proc is read.
  void runs(std::string_view comm, std::string_view exe, std::string_view command_line);
  // No compile was under way when we began to follow it.
  void set_no_compile_at_start(bool none) { no_compile_at_start_ = none; }

  // The row is out of date.
  void changed() { described_ = false; }
  // Writes the row if it is out of date. The versions are "" for what the process does not have.
  void describe(std::string_view python, std::string_view torch, RecordingWriter& writer);

 private:
  void write_rank(RecordingWriter& writer);

  pid_t pid_;
  pid_t parent_;
  bool keep_command_line_;
  std::uint64_t first_seen_ns_;
  ThreadIds threads_;
  std::string comm_, exe_, command_line_;  // as of its last exec, "" if none was seen
  bool no_compile_at_start_ = false;
  bool described_ = false;
};

}  // namespace dynprof
