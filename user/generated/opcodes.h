// Names of the opcodes of a CPython version and the meaning of their argument: enough to list the
// instructions of a code object as `dis` does. Tables of 3.10.13, 3.11.7, 3.12.1, 3.13.0, 3.14.10 and 3.15.2; the
// opcodes of a minor version do not change after its first release. Specialized and instrumented
// forms, which CPython writes over the original at run time, are listed as the original.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace dynprof {

enum class OpcodeArgument : std::uint8_t {
  kPlain,
  kName,          // index into co_names
  kNameShifted,   // co_names[arg >> 1]
  kNameShifted2,  // co_names[arg >> 2]
  kLocal,         // index of a local variable
  kLocalPair,     // two of them, four bits each
  kConstant,      // index into co_consts
  kFree,          // a cell: index into localsplus, on 3.10 into cells + free variables
  kJump,          // code units forward, from the next instruction
  kJumpBack,
  kJumpTo,  // a code unit
};

struct Opcode {
  std::string_view name;  // "" where the version has no such opcode
  OpcodeArgument argument = OpcodeArgument::kPlain;
  std::uint8_t caches = 0;    // code units of inline cache that follow
  std::uint8_t original = 0;  // its number, or of the one that it is a specialized form of
};

using OpcodeTable = std::array<Opcode, 256>;

// Null for a version without a table. `python` is major << 8 | minor.
const OpcodeTable* opcode_table(std::uint16_t python);

}  // namespace dynprof
