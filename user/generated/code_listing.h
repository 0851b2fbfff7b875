// A code object of the target as text: its name, the functions made by torch that it calls, and its
// instructions with lines, as `dis` lists them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "user/generated/python_objects.h"

namespace dynprof {

// What the instructions of a code object refer to, as text.
struct CodeBody {
  std::uint16_t python = 0;  // python_version()
  std::string bytecode;      // two bytes a unit; specialized as the interpreter left it
  std::vector<std::string> names;
  std::vector<std::string> constants;
  std::vector<std::string> locals;  // 3.11+: localsplus; 3.10: variables, then cells and free ones
  std::size_t variables = 0;        // 3.10: how many of them are variables
  std::string line_table;
  std::int32_t first_line = 0;
};

struct Instruction {
  std::uint32_t offset = 0;  // in bytes
  std::int32_t line = 0;     // 0: none
  std::string_view opcode;   // "" for a number without a name
  std::uint8_t number = 0;
  std::uint32_t argument = 0;
  std::string meaning;  // of the argument: a name, a constant, "to 40"; "" where it has none
};

// Without inline caches. Nothing for a CPython without a table of opcodes.
std::vector<Instruction> decode_instructions(const CodeBody& body);

// One line each: line number where it changes, offset, opcode, argument and its meaning.
std::string list_instructions(const std::vector<Instruction>& instructions);

// As the interpreter runs it: specialized, with caches. "" when it cannot be read.
std::string read_bytecode(PythonObjects& python, std::uint64_t code);

struct CodeText {
  RemoteCode code;
  CodeBody body;
};
// Nothing when it is no code object, or changed while it was read.
std::optional<CodeText> read_code_text(PythonObjects& python, std::uint64_t code);

}  // namespace dynprof
