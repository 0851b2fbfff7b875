// What an armed hardware watchpoint costs a thread that never touches it. On some processors string
// instructions then go byte by byte, the kernel's among them, which clear a page at its first use:
// measured on Zen 5, `rep stosb` of 4 KiB takes 1.3 us instead of 0.04, a page fault twice as long
// (tests/bench/watchpoint_strings.c). A breakpoint on execution costs nothing there.
#pragma once

namespace dynprof {

// Time of a page fault in this thread with a watchpoint armed, over the time without: measured here and
// now, some milliseconds; 1 where no watchpoint can be had.
double watchpoint_cost();

// From here on threads are better watched only while they compile.
inline constexpr double kDearWatchpoint = 1.1;

}  // namespace dynprof
