// Ctrl-C and SIGTERM end a recording in good order; the second one ends the program at once (the
// recording on disk stays readable up to its last flush).
#pragma once

namespace dynprof {

class StopSignals {
 public:
  StopSignals();
  // Forks and execs of ours start with the dispositions from before.
  static void restore_defaults();
  static bool requested();
};

}  // namespace dynprof
