// A profile as CPython's pstats reads it: {(file, line, name): (cc, nc, tt, ct, callers)}.
//   cc  samples (and waits) with the function as leaf     tt  their time in seconds
//   nc  samples (and waits) with it on the stack          ct  likewise
// callers: {(file, line, name): the same four}. Written as cProfile's dump_stats would: no marker
// entries and no bare numbers as callers, either of which breaks pstats, snakeviz, gprof2dot or
// flameprof.
#pragma once

#include <cstdint>
#include <string>

#include "symbolizer/profile/functions.h"
#include "symbolizer/profile/profile.h"

namespace dynprof {

std::string pstats_bytes(const Profile& profile, const Functions& functions);

}  // namespace dynprof
