// Which processes a session follows, and what is looked for in them: the targets, or all processes, and their
// children; Python, torch and CUDA, which may appear at any time.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>

#include "symbolizer/base/result.h"
#include "symbolizer/recording/writer.h"
#include "user/process/memory_watch.h"
#include "user/process/process_lives.h"
#include "user/process/process_table.h"
#include "user/session/notes.h"
#include "user/session/session_options.h"
#include "user/session/sources.h"
#include "user/session/targets.h"
#include "user/session/turns.h"

namespace dynprof {

class ProcessFollower {
 public:
  // All outlive it. The targets have been checked. The looks before the first sample end early when
  // `stop_requested` (may be empty) returns true.
  ProcessFollower(const SessionOptions& options, Sources& sources, Targets& targets, Notes& notes,
                  std::function<bool()> stop_requested);

  // Before the recording is created, which contains the versions of the first target. An error: a target cannot
  // be sampled.
  Result<void> examine();
  // The kernel side follows the processes from here on, with the children that they have.
  Result<void> begin();
  // The first rows of the recording.
  void write_begin(RecordingWriter& writer);
  // Each time through the loop: work that is due for each process. Returns when it is to be called at the latest.
  std::uint64_t tick(std::uint64_t now_ns, RecordingWriter& writer);
  // What has appeared since; within a few milliseconds, the rest the next time.
  void look_again(std::uint64_t now_ns, RecordingWriter& writer);
  // Their last rows, in two steps: threads read the memory of some of the processes meanwhile.
  void begin_end(RecordingWriter& writer);
  void write_end(RecordingWriter& writer);

  // Gives up the rights that are no longer needed, now and after each later look. `watchpoints_need_admin`: the
  // kernel wants CAP_SYS_ADMIN for each.
  void drop_rights(bool watchpoints_need_admin);

  ProcessTable& processes() { return processes_; }
  const ProcessTable& processes() const { return processes_; }
  const ProcessLives& lives() const { return lives_; }
  std::uint64_t start_ns() const { return start_ns_; }

 private:
  Result<void> add_child(pid_t child, pid_t parent);
  Result<void> catch_up_with_all();
  bool may_look_more() const;
  void look_for_gpus(std::uint64_t now_ns, std::uint64_t until_ns);
  void look_at(FollowedProcess& process, std::uint64_t now_ns, RecordingWriter& writer);

  const SessionOptions& options_;
  Sources& sources_;
  Targets& targets_;
  Notes& notes_;
  std::function<bool()> stop_requested_;
  ProcessTable processes_;
  ProcessLives lives_;
  Turns<pid_t> look_turns_, gpu_turns_;
  std::uint64_t next_ticks_ns_ = 0, tick_due_ns_ = 0, next_looks_ns_ = 0;
  std::uint64_t next_gpu_looks_ns_ = 0, next_problems_ns_ = 0;
  std::uint64_t start_ns_ = 0;
  std::optional<bool> watchpoints_need_admin_;  // nothing: rights are kept so far
  bool dropped_all_ = false;
  MemoryWatch memory_;
};

}  // namespace dynprof
