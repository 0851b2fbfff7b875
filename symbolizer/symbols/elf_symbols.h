// Function symbols of one ELF file, by address: .symtab where it is there, else .dynsym. The file is
// read through a descriptor, may be hostile, and is released again once its symbols are taken.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "symbolizer/base/result.h"

namespace dynprof {

class ElfSymbols {
 public:
  // `fd` stays the caller's.
  static Result<ElfSymbols> read(int fd);

  // The demangled name of the function that covers this offset in the file.
  std::optional<std::string> find(std::uint64_t file_offset) const;
  std::size_t size() const { return symbols_.size(); }

  // Where in the file a function lies: itself and the parts the compiler split off it, which are
  // called `name.cold` and the like. By C name.
  struct Range {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };
  std::vector<Range> parts_of(std::string_view name) const;

 private:
  struct Symbol {
    std::uint64_t address = 0;
    std::uint64_t size = 0;
    std::uint32_t name = 0;  // into names_
  };
  struct Segment {
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
    std::uint64_t address = 0;
  };
  std::vector<Symbol> symbols_;  // by address
  std::vector<Segment> segments_;
  std::string names_;  // NUL-separated
};

// C++ names made readable, bounded to `kMaxSymbolBytes`; others as they are.
inline constexpr std::size_t kMaxSymbolBytes = 1024;
std::string demangle(const char* mangled);

}  // namespace dynprof
