// The little of an ELF file that finding an interpreter needs: symbols by name, where writable data
// lies, and how its addresses became addresses of a process. The file may be hostile: see
// user/target/elf_tables.h.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "symbolizer/base/result.h"
#include "symbolizer/base/unique_fd.h"
#include "user/target/process.h"
#include "user/target/symbol_search.h"

namespace dynprof {

class ElfImage {
 public:
  // `name` is for error texts.
  static Result<ElfImage> open(UniqueFd file, std::string name, ReadBudget& budget);
  ElfImage(ElfImage&&) noexcept = default;
  ElfImage& operator=(ElfImage&&) noexcept = default;

  // One answer per name (user/target/symbol_search.h); none when the tables are damaged.
  std::vector<std::optional<ElfSymbol>> find_symbols(std::span<const std::string_view> names,
                                                     ReadBudget& budget,
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
  std::optional<std::uint64_t> load_bias(std::span<const Mapping> mappings) const {
    return load_bias(segments_, mappings);
  }
  static std::optional<std::uint64_t> load_bias(std::span<const Segment> segments,
                                                std::span<const Mapping> mappings);

 private:
  ElfImage() = default;

  UniqueFd file_;
  ElfTables tables_;
  std::vector<Segment> segments_;
  bool wants_loader_ = false;
};

}  // namespace dynprof
