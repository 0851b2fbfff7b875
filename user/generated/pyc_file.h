// A code object as a .pyc file of its CPython: the header, then marshal.
#pragma once

#include <optional>
#include <string>

#include "user/generated/code_object.h"

namespace dynprof {

// Nothing for a CPython whose magic number is not known. A constant that no file can hold is the text
// "__co_consts[3]", as depyf writes it, with its number in the innermost code or tuple.
std::optional<std::string> pyc_bytes(const CodeObject& code);

}  // namespace dynprof
