// From the first event of a recording to its last: reads events, writes the recording, does in between what is
// due, and ends for one of the reasons in StopRules.
#pragma once

#include <cstdint>
#include <string>

#include "symbolizer/base/result.h"
#include "symbolizer/recording/writer.h"
#include "user/process/sample_encoder.h"
#include "user/session/event_router.h"
#include "user/session/notes.h"
#include "user/session/poll_pace.h"
#include "user/session/process_follower.h"
#include "user/session/reader_priority.h"
#include "user/session/session.h"
#include "user/session/session_losses.h"
#include "user/session/session_options.h"
#include "user/session/sources.h"
#include "user/session/stop_rules.h"
#include "user/session/targets.h"
#include "user/stacks/native_frames.h"

namespace dynprof {

// What a loop uses; all of it outlives the loop.
struct LoopParts {
  const SessionOptions& options;
  const SessionHooks& hooks;
  Sources& sources;
  ProcessFollower& follower;
  Targets& targets;
  Notes& notes;
  RecordingWriter& writer;
  ReaderPriority& priority;
};

class RecordingLoop {
 public:
  // Sampling has begun at `since_ns`.
  RecordingLoop(const LoopParts& parts, std::uint64_t since_ns);

  // Writes the first rows, then runs until a reason to stop, which it returns.
  std::string run();
  // Everything is detached: the events that are still waiting, for a bounded time.
  void read_rest();
  // The last rows, while the processes may still exist. Threads begin to read their memory.
  void begin_end();
  // Names of what was seen. Needs nothing of the processes' memory, and may take a minute.
  void write_names();
  // What the threads have read.
  void write_end();

  // An error of writing in the loop.
  const Result<void>& written() const { return written_; }
  SessionStatus status(std::uint64_t now_ns) const;
  // Of the kernel side and of this loop; complete after write_end().
  Counters counters() const;

 private:
  bool consume(const DrainBudget& budget = {});
  void detach_gpus();
  std::string reason_to_stop(std::uint64_t now_ns);

  LoopParts parts_;
  std::uint64_t since_ns_;
  StopRules stop_;
  PollPace pace_;
  NativeFrames native_;
  SampleEncoder encoder_;
  SessionLosses losses_;
  EventRouter router_;
  Result<void> written_;
};

}  // namespace dynprof
