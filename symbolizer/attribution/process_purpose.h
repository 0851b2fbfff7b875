// What a process was started for, from its command line: compiling a kernel, or something that is done once
// and then kept in a cache. Command lines are the target's, cut anywhere.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "symbolizer/recording/model.h"

namespace dynprof {

enum class Purpose : std::uint8_t {
  kOther,       // not known
  kKernel,      // compiles code that a compile generated
  kLauncher,    // compiles the C function that starts a Triton kernel
  kAssembler,   // ptxas: a GPU kernel's machine code
  kAutotuning,  // torch's process that times candidates of a kernel
  kWorker,      // torch's compile worker: waits for work
  // Once, then kept in a cache or in the process.
  kIsaProbe,      // whether a small program for an instruction set can be compiled and loaded
  kHeader,        // precompiles the header of all C++ kernels
  kVersion,       // which compiler it is
  kTritonDriver,  // compiles Triton's access to the GPU driver
};
const char* purpose_text(Purpose purpose);  // "kernel", "instruction-set probe", ...
bool is_one_off(Purpose purpose);

// What the arguments of a command line have to be for a purpose. Every part that is given must hold.
struct PurposeRule {
  Purpose purpose;
  const char* name;                // of the rule, for its test
  const char* program = "";        // "compiler": one of compiler_programs(); else the base name
  const char* argument_end = "";   // an argument ends like this
  const char* argument_part = "";  // an argument contains this
  bool (*holds)(std::string_view command_line) = nullptr;
};
// In this order; the first that holds decides.
std::span<const PurposeRule> purpose_rules();

// By the command line alone. `program` is the base name of the executable, "": the first argument's.
Purpose purpose_of(std::string_view command_line, std::string_view program);

// The library that an instruction-set probe loads ("…/c73e….so"), "": none.
std::string_view probed_library(std::string_view command_line);
// The hash that Inductor names a generated file by ("chjq…p2ed" of "/c/hj/chjq…p2ed.main.cpp"), "": it is no
// such name.
std::string_view inductor_hash(std::string_view path);

}  // namespace dynprof
