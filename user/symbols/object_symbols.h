// Names of the functions of one mapped file: from its own .symtab, else from its separate debug file
// (.symtab by build-id or debug link), else from .dynsym.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "symbolizer/symbols/elf_symbols.h"
#include "user/unwind_tables/byte_source.h"

namespace dynprof {

class ObjectSymbols {
 public:
  // `root` and `path`: where the debug file is looked for, see find_debug_file; -1: nowhere.
  static Result<ObjectSymbols> read(ByteSource file, int root, const std::string& path);

  // The file by offset (of the mapped file, whichever file the names come from), or by address.
  std::optional<std::string> find(std::uint64_t file_offset) const;
  std::optional<std::string> find_address(std::uint64_t address) const;
  // As ElfSymbols::parts_of, by offset in the mapped file.
  std::vector<ElfSymbols::Range> parts_of(std::string_view name) const;

 private:
  ObjectSymbols() = default;
  std::unique_ptr<ByteSource> file_, debug_;  // what the symbols read from
  std::vector<ImageSegment> segments_;
  std::optional<ElfSymbols> own_, separate_;
};

// As ElfSymbols reads it.
ImageBytes image_of(const ByteSource& file);

}  // namespace dynprof
