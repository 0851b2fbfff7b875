// A whole code object of the target, constants and nested code included, so that it can be written as a
// .pyc file of its version. Everything in it is hostile: depth, number of constants and bytes are bounded,
// a constant that contains itself is met once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "user/generated/python_objects.h"

namespace dynprof {

struct CodeObject;

struct CodeConstant {
  enum class Kind : std::uint8_t {
    kNone,
    kFalse,
    kTrue,
    kEllipsis,
    kInt,
    kLongInt,  // of 2^60 and more
    kFloat,
    kComplex,
    kStr,
    kBytes,
    kTuple,
    kFrozenSet,
    kSlice,  // three items
    kCode,
    kOther,  // what no file can hold: an object that Dynamo put there, or what could not be read
  };
  Kind kind = Kind::kOther;
  std::int64_t integer = 0;
  bool negative = false;              // kLongInt
  std::vector<std::uint16_t> digits;  // kLongInt: of 15 bits, the least significant first
  double number = 0;                  // kFloat; of kComplex the real part
  double imaginary = 0;
  std::string text;  // kStr, kBytes; kOther: its type
  std::vector<CodeConstant> items;
  std::shared_ptr<const CodeObject> code;
};

struct CodeObject {
  std::uint16_t python = 0;  // python_version()
  std::int32_t arguments = 0;
  std::int32_t positional_only = 0;
  std::int32_t keyword_only = 0;
  std::int32_t local_count = 0;  // 3.10
  std::int32_t stack_size = 0;
  std::int32_t flags = 0;
  std::int32_t first_line = 0;
  std::string bytecode;  // as `co_code` gives it: neither specialized nor with caches
  std::vector<CodeConstant> constants;
  std::vector<std::string> names;
  // 3.11+: co_localsplusnames with their kinds. 3.10: variables, free ones, cells.
  std::vector<std::string> locals;
  std::string local_kinds;
  std::vector<std::string> free_names;
  std::vector<std::string> cell_names;
  std::string filename;
  std::string name;
  std::string qualname;
  std::string line_table;
  std::string exception_table;
};

struct CodeObjectLimits {
  std::size_t depth = 12;          // of constants in constants
  std::size_t constants = 65'536;  // in all
  std::size_t bytes = 4u << 20;    // of texts, bytecode and tables in all
};

struct ReadCode {
  CodeObject code;
  // Constants that no file can hold, of this code and those in it.
  std::size_t replaced = 0;
};

// Nothing when it is no code object, has other bounds than `limits`, or changed while it was read.
std::optional<ReadCode> read_code_object(PythonObjects& python, std::uint64_t address,
                                         const CodeObjectLimits& limits = {});

// What `co_code` gives for the bytes that the interpreter runs: the instruction that each specialized one
// stands for, with empty caches. Nothing where that is not known (an instrumented LINE event, JIT code).
std::optional<std::string> original_bytecode(std::uint16_t python, std::string bytecode);

}  // namespace dynprof
