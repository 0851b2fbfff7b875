// The little of an ELF file that finding an interpreter needs: symbols by name, where writable data
// lies, and how its addresses became addresses of a process. The file may be hostile: libelf reads it
// through a descriptor (no mapping that can be truncated under us) and every count is bounded.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "symbolizer/base/result.h"
#include "symbolizer/base/unique_fd.h"
#include "user/target/process.h"

struct Elf;

namespace dynprof {

struct ElfSymbol {
  std::uint64_t address = 0;  // in the file's own address space
  std::uint64_t size = 0;
};

class ElfImage {
 public:
  // `name` is for error texts.
  static Result<ElfImage> open(UniqueFd file, std::string name);
  ElfImage(ElfImage&&) noexcept = default;
  ElfImage& operator=(ElfImage&&) noexcept = default;

  // One answer per name, by one pass over .dynsym and, for names it lacks, one over .symtab.
  // Undefined symbols do not count. `exported_only` leaves .symtab out, which can be large.
  std::vector<std::optional<ElfSymbol>> find_symbols(std::span<const std::string_view> names,
                                                     bool exported_only = false) const;

  struct Segment {
    std::uint64_t address = 0;
    std::uint64_t offset = 0;
    std::uint64_t file_size = 0;
    std::uint64_t memory_size = 0;
    bool writable = false;
  };
  const std::vector<Segment>& segments() const { return segments_; }  // PT_LOAD
  bool wants_loader() const { return wants_loader_; }                 // PT_INTERP

  // Address in the process minus address in the file, from the mappings of this file; nullopt when
  // no mapping fits a segment.
  std::optional<std::uint64_t> load_bias(std::span<const Mapping> mappings) const;

 private:
  struct ElfEnd {
    void operator()(Elf* elf) const;
  };
  ElfImage() = default;
  void scan_section(std::uint32_t type, std::span<const std::string_view> names,
                    std::vector<std::optional<ElfSymbol>>& found) const;

  UniqueFd file_;  // outlives elf_
  std::unique_ptr<Elf, ElfEnd> elf_;
  std::vector<Segment> segments_;
  bool wants_loader_ = false;
};

}  // namespace dynprof
