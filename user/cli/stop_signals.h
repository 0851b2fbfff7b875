// Ctrl-C, SIGTERM and SIGHUP end a recording in good order; the second one ends the program at once (the
// recording on disk stays readable up to its last flush).
#pragma once

namespace dynprof {

class StopSignals {
 public:
  StopSignals();
  // In a child, before its exec: the dispositions from before.
  static void restore();
  static bool requested();
  // While set, the first signal ends the program at once: the recording is complete, and everything else
  // can be made from it.
  static void end_at_once(bool on);
};

}  // namespace dynprof
