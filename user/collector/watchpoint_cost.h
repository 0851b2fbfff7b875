// What an armed hardware watchpoint costs a thread that never touches it. Nothing on a bare machine; in
// a virtual machine each exit to the host saves and restores the debug registers, and where page faults
// exit (nested virtualization) each fault gets dearer: measured 1.4 times on one such machine.
#pragma once

namespace dynprof {

// Time of a page fault in this thread with a watchpoint armed, over the time without: measured here and
// now, some milliseconds; 1 where no watchpoint can be had.
double watchpoint_cost();

// From here on threads are better watched only while they compile.
inline constexpr double kDearWatchpoint = 1.1;

}  // namespace dynprof
