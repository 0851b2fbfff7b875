// C++ names as people write them. Names come from files of the target: a name of 250 bytes can stand for
// 500 MB of text, since each part of it may be referred to any number of times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace dynprof {

inline constexpr std::size_t kMaxSymbolBytes = 1024;
inline constexpr std::size_t kMaxMangledBytes = 16 * kMaxSymbolBytes;

// Cut to `kMaxSymbolBytes`. What is not a mangled name stays as it is. So does what could become too long and
// what set_long_names was given has no text for: 1 in 10,000 of the functions that torch 2.13 exports, and 7 in
// 100 of all that libtorch_python.so has.
std::string demangle(const char* mangled);

// Demangles any name, cut to `kMaxSymbolBytes`; "": not a mangled name. Only for a process with limits on memory and time.
std::string demangle_unbounded(const std::string& mangled);

// Sets the demangler for names that could become too long; it must bound memory and time. "": not demangled.
void set_long_names(std::function<std::string(const std::string& mangled)> demangler);

// False: the text of this name (Itanium C++ ABI) might be longer than `most` bytes. Without parsing: every
// reference counts as all that stands in front of it.
bool expands_within(std::string_view mangled, std::uint64_t most);

}  // namespace dynprof
