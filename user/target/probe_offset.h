// Which instruction of a function to set a probe on. The kernel emulates pushes, jumps and calls. Any other
// instruction it has the CPU execute apart, which costs a second trap: on a virtual machine, where that trap leaves the
// guest, 9.9 instead of 1.0 µs a hit (docs/development/overhead.md).
#pragma once

#include <cstdint>

namespace dynprof {

enum class ProbeReads : std::uint8_t {
  kArguments,  // registers with arguments, and the return address where the stack pointer is
  kNothing,    // neither registers nor the stack
};

// `offset` is that of the function's first instruction in the file `fd`. The answer is that of the first emulated
// instruction, if only known instructions that change nothing the probe reads are before it; else `offset`.
// `calls`: it may be a call. A call is not emulated correctly in a process with a shadow stack before Linux 6.18.
std::uint64_t probe_offset(int fd, std::uint64_t offset, ProbeReads reads, bool calls);

}  // namespace dynprof
