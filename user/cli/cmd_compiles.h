// The tables of `compiles`: what a process has compiled so far, as text.
#pragma once

#include <string>

#include "user/history/compile_history.h"

namespace dynprof {

// One row per compile, oldest first, with why it was compiled again, where its graph broke and what
// failed in lines below it. At most 100 columns.
std::string compiles_table(const CompileHistory& history);

// torch's compile_times(): seconds by the name of each dynamo_timed.
std::string compile_times_table(const CompileHistory& history);

}  // namespace dynprof
