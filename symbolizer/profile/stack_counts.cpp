#include "symbolizer/profile/stack_counts.h"

#include <algorithm>
#include <tuple>

#include "symbolizer/base/hash.h"
#include "symbolizer/base/interner.h"

namespace dynprof {
namespace {

auto key_of(const StackCount& count) {
  return std::tuple(count.compile, count.stack, count.thread, count.phase);
}

std::uint64_t hash_of(const StackCount& count) {
  std::uint64_t first = (static_cast<std::uint64_t>(count.compile) << 32) | count.stack;
  std::uint64_t second =
      (static_cast<std::uint64_t>(count.thread) << 8) | static_cast<std::uint8_t>(count.phase);
  return hash_u64(first ^ hash_u64(second));
}

}  // namespace

StackCounts::StackCounts(const Attribution& attribution) {
  IndexTable table;
  attribution.for_each([&](const AttributedSample& attributed) {
    StackCount count{attributed.compile, attributed.sample.stack, attributed.sample.thread,
                     attributed.phase, 1};
    std::uint64_t hash = hash_of(count);
    std::uint32_t index = table.find(
        hash, [&](std::uint32_t other) { return key_of(counts_[other]) == key_of(count); });
    if (index != IndexTable::kNone) {
      ++counts_[index].samples;
      return;
    }
    index = static_cast<std::uint32_t>(counts_.size());
    counts_.push_back(count);
    table.add(hash, index, [&](std::uint32_t other) { return hash_of(counts_[other]); });
  });
  std::sort(counts_.begin(), counts_.end(),
            [](const StackCount& a, const StackCount& b) { return key_of(a) < key_of(b); });
}

std::span<const StackCount> StackCounts::of(CompileIndex compile) const {
  auto begin = std::partition_point(counts_.begin(), counts_.end(), [&](const StackCount& count) {
    return count.compile < compile;
  });
  auto end = std::partition_point(
      begin, counts_.end(), [&](const StackCount& count) { return count.compile == compile; });
  return {begin, end};
}

}  // namespace dynprof
