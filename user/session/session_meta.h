// What is stored at the begin of a recording: machine, targets, versions, clocks.
#pragma once

#include "user/process/followed_process.h"
#include "user/session/session_options.h"

namespace dynprof {

// `first`: the first target; null: none, or not followed yet.
Meta describe_session(const SessionOptions& options, const SamplingEvents& events,
                      std::uint64_t start_ns, const FollowedProcess* first);

}  // namespace dynprof
