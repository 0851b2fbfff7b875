// Function symbols of one ELF file, by address: .symtab where it is there, else .dynsym. The file may
// be hostile: every count and size is bounded. Kept are addresses; names are read from the file when
// they are asked for (libtorch_cpu.so 2.13 has 535,000, 60 MB of them).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "symbolizer/base/result.h"
#include "symbolizer/symbols/image_bytes.h"

namespace dynprof {

struct ImageSegment {  // a PT_LOAD
  std::uint64_t offset = 0;
  std::uint64_t size = 0;  // in the file
  std::uint64_t address = 0;
  bool operator==(const ImageSegment&) const = default;
};

class ElfSymbols {
 public:
  // What is read from must outlive this.
  static Result<ElfSymbols> read(ImageBytes image);
  static Result<ElfSymbols> read(int fd) { return read(ImageBytes(fd)); }

  // The demangled name of the function that covers this offset in the file, or this address.
  std::optional<std::string> find(std::uint64_t file_offset) const;
  std::optional<std::string> find_address(std::uint64_t address) const;
  std::size_t size() const { return symbols_.size(); }
  // It has .symtab: functions that are not exported, too.
  bool complete() const { return complete_; }
  std::span<const ImageSegment> segments() const { return segments_; }

  // Where in the file a function lies: itself and the parts the compiler split off it, which are
  // called `name.cold` and the like. By C name.
  struct Range {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };
  std::vector<Range> parts_of(std::string_view name) const { return parts_of(name, segments_); }
  // The same, in a file with these segments (of a separate debug file they say nothing).
  std::vector<Range> parts_of(std::string_view name, std::span<const ImageSegment> segments) const;

 private:
  struct Symbol {
    std::uint64_t address = 0;
    std::uint32_t size = 0;  // of larger ones the most it can say
    std::uint32_t name = 0;  // in the string table
  };
  explicit ElfSymbols(ImageBytes image) : image_(image) {}
  void take(std::span<const std::uint8_t> symbols);
  // As in the file, or its first bytes.
  std::string name_of(const Symbol& symbol, std::size_t most) const;

  ImageBytes image_;
  std::vector<Symbol> symbols_;  // by address
  std::vector<ImageSegment> segments_;
  std::uint64_t names_offset_ = 0;
  std::uint64_t names_size_ = 0;
  bool complete_ = false;
};

// The address in the file's own address space that lies at this offset.
std::optional<std::uint64_t> address_at(std::span<const ImageSegment> segments,
                                        std::uint64_t file_offset);

}  // namespace dynprof
