// `dynprof-bpf source-places`, which no user calls: reads the DWARF of the file that is its
// standard input in a process of its own, so that neither a damaged nor a hostile file can harm the
// recorder.
#pragma once

namespace dynprof {

inline constexpr const char* kPlaceHelperVerb = "source-places";
inline constexpr int kDwarfDamaged = 10;  // its exit status; what it wrote before holds

// Request and answer as in place_wire.h, descriptors as run_confined gives them. Returns the exit
// status.
int run_place_helper();

}  // namespace dynprof
