// --gpu auto on a terminal: whether to load the library into processes that could have it.
#pragma once

#include "user/session/session_options.h"

namespace dynprof {

// Asks, if there are such processes and somebody who can answer; no answer within ten seconds is a no.
bool asked_to_load_library(const SessionOptions& options);

}  // namespace dynprof
