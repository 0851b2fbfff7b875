// Which rank of a distributed job each process is, from the "rank" documents of a recording: what RANK was in the
// environment of the process when it started (torchrun and others set it; torch.distributed reads it).
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "symbolizer/recording/model.h"

namespace dynprof {

// Rank by pid, of the processes in `compiling`. Empty unless there are two of them at least, each with another rank: a
// rank's children have its environment too.
std::map<std::int32_t, std::string> read_ranks(const Tables& tables,
                                               const std::set<std::int32_t>& compiling);

}  // namespace dynprof
