#include "user/symbols/split_parts.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "user/unwind_tables/cfi_index.h"
#include "user/unwind_tables/elf_layout.h"
#include "user/unwind_tables/unwind_table.h"

namespace dynprof {
namespace {

constexpr std::uint64_t kMaxCode = 1 << 20;  // CPython's loop has 64 KB
// Bytes that look like a jump but are none lead anywhere: one to a function at most in CPython's
// builds, where the loop's true part has 377.
constexpr std::uint32_t kFewJumps = 6;

// Where the jump that these bytes may be leads; jmp rel32 and jcc rel32, x86-64.
std::optional<std::uint64_t> jump_target(ByteView code, std::size_t at, std::uint64_t address) {
  const bool always = code[at] == 0xe9;
  const bool conditional = code[at] == 0x0f && (code[at + 1] & 0xf0) == 0x80;
  if (!always && !conditional) return std::nullopt;
  const std::size_t operand = at + (always ? 1 : 2);
  std::int32_t distance = 0;
  std::memcpy(&distance, &code[operand], sizeof distance);
  return address + operand + sizeof distance + static_cast<std::uint64_t>(std::int64_t{distance});
}

std::vector<CfiFde> functions_of(const UnwindInput& input) {
  CfiIndex index;
  std::uint8_t number = 0;
  for (const FrameSection& section : input.sections) {
    index_section(section, number++, input.layout, index);
  }
  std::sort(index.fdes.begin(), index.fdes.end(),
            [](const CfiFde& a, const CfiFde& b) { return a.begin < b.begin; });
  return std::move(index.fdes);
}

std::optional<std::uint64_t> address_of(const ElfLayout& layout, const ElfSymbols::Range& range) {
  for (const ElfSegment& segment : layout.segments) {
    if (segment.executable && range.begin >= segment.offset &&
        range.end - segment.offset <= segment.file_size)
      return range.begin - segment.offset + segment.address;
  }
  return std::nullopt;
}

std::optional<ElfSymbols::Range> range_of(const ElfLayout& layout, std::uint64_t address,
                                          std::uint64_t size) {
  for (const ElfSegment& segment : layout.segments) {
    if (segment.executable && address >= segment.address &&
        address - segment.address + size <= segment.file_size) {
      const std::uint64_t offset = address - segment.address + segment.offset;
      return ElfSymbols::Range{offset, offset + size};
    }
  }
  return std::nullopt;
}

}  // namespace

std::vector<ElfSymbols::Range> split_parts(const ByteSource& file, const ElfSymbols::Range& whole) {
  constexpr std::size_t kLongestJump = 6;
  if (whole.end < whole.begin + kLongestJump || whole.end - whole.begin > kMaxCode) return {};
  const auto input = read_unwind_input(file);
  const auto code = file.block(whole.begin, whole.end - whole.begin);
  if (!input || !code) return {};
  const auto base = input->layout.code_base();
  const auto begin = address_of(input->layout, whole);
  if (!base || !begin) return {};
  const std::uint64_t end = *begin + (whole.end - whole.begin);

  const std::vector<CfiFde> functions = functions_of(*input);
  std::vector<std::uint32_t> jumps(functions.size());
  const ByteView bytes = code->view();
  for (std::size_t at = 0; at + kLongestJump <= bytes.size(); ++at) {
    const auto target = jump_target(bytes, at, *begin);
    if (!target || *target < *base || (*target >= *begin && *target < end)) continue;
    const std::uint64_t place = *target - *base;
    auto next = std::upper_bound(functions.begin(), functions.end(), place,
                                 [](std::uint64_t p, const CfiFde& fde) { return p < fde.begin; });
    if (next == functions.begin()) continue;
    const CfiFde& into = *--next;
    if (place > into.begin && place - into.begin < into.size)
      ++jumps[static_cast<std::size_t>(next - functions.begin())];
  }
  std::vector<ElfSymbols::Range> parts;
  for (std::size_t i = 0; i < functions.size(); ++i) {
    if (jumps[i] < kFewJumps) continue;
    const auto part = range_of(input->layout, *base + functions[i].begin, functions[i].size);
    if (part) parts.push_back(*part);
  }
  return parts;
}

}  // namespace dynprof
