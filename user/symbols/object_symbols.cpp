#include "user/symbols/object_symbols.h"

#include <utility>

#include "user/symbols/split_parts.h"
#include "user/unwind_tables/debug_file.h"

namespace dynprof {

ImageBytes image_of(const ByteSource& file) {
  return file.file() >= 0 ? ImageBytes(file.file(), file.budget()) : ImageBytes(file.bytes());
}

Result<ObjectSymbols> ObjectSymbols::read(ByteSource file, int root, const std::string& path) {
  ObjectSymbols result;
  result.file_ = std::make_unique<ByteSource>(std::move(file));
  ASSIGN_OR_RETURN(ElfSymbols own, ElfSymbols::read(image_of(*result.file_)));
  result.segments_.assign(own.segments().begin(), own.segments().end());
  const bool complete = own.complete();
  result.own_ = std::move(own);
  if (complete || root < 0) return result;
  auto layout = read_elf_layout(*result.file_);
  if (!layout) return result;
  auto debug = find_debug_file(
      root, path, *layout, [](const ElfLayout&) { return true; }, result.file_->budget());
  if (!debug) return result;
  result.debug_ = std::make_unique<ByteSource>(std::move(debug->file));
  auto separate = ElfSymbols::read(image_of(*result.debug_));
  if (separate && separate->complete()) result.separate_ = *std::move(separate);
  return result;
}

std::optional<std::string> ObjectSymbols::find(std::uint64_t file_offset) const {
  const auto address = address_at(segments_, file_offset);
  return address ? find_address(*address) : std::nullopt;
}

std::optional<std::string> ObjectSymbols::find_address(std::uint64_t address) const {
  if (separate_)
    if (auto name = separate_->find_address(address)) return name;
  return own_->find_address(address);
}

std::vector<ElfSymbols::Range> ObjectSymbols::parts_of(std::string_view name) const {
  auto parts = separate_ ? separate_->parts_of(name, segments_) : std::vector<ElfSymbols::Range>{};
  if (!parts.empty()) return parts;
  parts = own_->parts_of(name, segments_);
  if (own_->complete() || parts.size() != 1) return parts;
  // .dynsym has no symbols of parts.
  for (const ElfSymbols::Range& part : split_parts(*file_, parts[0])) parts.push_back(part);
  return parts;
}

}  // namespace dynprof
