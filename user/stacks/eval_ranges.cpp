#include "user/stacks/eval_ranges.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>

#include "user/symbols/object_symbols.h"
#include "user/target/process.h"
#include "user/target/safe_open.h"

namespace dynprof {

EvalRanges::EvalRanges(std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges)
    : ranges_(std::move(ranges)) {
  std::sort(ranges_.begin(), ranges_.end());
}

bool EvalRanges::contains(std::uint64_t address) const {
  return std::any_of(ranges_.begin(), ranges_.end(), [&](const auto& range) {
    return address >= range.first && address < range.second;
  });
}

std::optional<EvalRanges> EvalRanges::find(pid_t pid, const std::string& image_path) {
  auto mappings = read_mappings(pid);
  if (!mappings || mappings->empty()) return std::nullopt;
  std::vector<ElfSymbols::Range> parts;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;
  for (const Mapping& mapping : *mappings) {
    if (!mapping.executable || mapping.path != image_path) continue;
    if (parts.empty()) {
      auto file = open_mapped_file(pid, mapping);
      auto source = file ? ByteSource::of_file(*std::move(file)) : Result<ByteSource>(file.error());
      if (!source) return std::nullopt;
      ReadBudget budget(1ULL << 30, std::chrono::milliseconds(5000));
      source->pay_from(&budget);
      const UniqueFd root = open_root_of(pid);
      auto symbols = ObjectSymbols::read(*std::move(source), root.get(), mapping.path);
      if (!symbols) return std::nullopt;
      parts = symbols->parts_of("_PyEval_EvalFrameDefault");
    }
    const std::uint64_t mapped_end = mapping.offset + (mapping.end - mapping.start);
    for (const ElfSymbols::Range& part : parts) {
      const std::uint64_t begin = std::max(part.begin, mapping.offset);
      const std::uint64_t end = std::min(part.end, mapped_end);
      if (begin >= end) continue;
      ranges.emplace_back(mapping.start + (begin - mapping.offset),
                          mapping.start + (end - mapping.offset));
    }
  }
  return EvalRanges(std::move(ranges));
}

}  // namespace dynprof
