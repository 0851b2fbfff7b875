// Begin, programs and end of the followed processes, for the recording: see ProcessLife in life_model.h.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "symbolizer/recording/writer.h"
#include "user/kernel/event_view.h"

namespace dynprof {

class ProcessLives {
 public:
  explicit ProcessLives(bool command_lines) : command_lines_(command_lines) {}

  // A process event as it came.
  void event(const ProcessEventView& view, RecordingWriter& writer) const;
  // Exists when the recording begins; parent 0: it is a target.
  void there(pid_t pid, pid_t parent, RecordingWriter& writer) const;
  // Still exists when it ends.
  void left(pid_t pid, RecordingWriter& writer) const;

 private:
  bool command_lines_;
};

}  // namespace dynprof
