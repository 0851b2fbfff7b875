// A thread at one moment: its stack, torch's reported state of it, and the user's code its compile is at, read
// so that all of it is of that moment.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

#include "user/live/compile_now.h"
#include "user/live/target_view.h"
#include "user/live/user_code.h"

namespace dynprof {

struct ThreadMoment {
  RemoteStack stack;
  TorchMoment torch;
  std::optional<CompileNow> compile;
  UserCode user_code;
  bool consistent = false;  // false: it moved while it was read, what is here may be a mixture
};

ThreadMoment read_thread_moment(TargetView& view, TorchReader& torch, pid_t tid,
                                std::uint64_t tstate, Deadline deadline);

// The user's code alone: the frames it is read from held still meanwhile, those above them need not have.
// Empty: there is none, or it was not still until the deadline. `pages` is what `view` reads everything but stacks
// through; it is renewed once the stack was read.
UserCode read_user_code_now(TargetView& view, SnapshotMemory& pages, std::uint64_t tstate,
                            Deadline deadline);

}  // namespace dynprof
