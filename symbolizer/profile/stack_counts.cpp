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

// Equal keys become one.
class Summer {
 public:
  explicit Summer(std::vector<StackCount>& counts) : counts_(counts) {}
  void add(const StackCount& count) {
    std::uint64_t hash = hash_of(count);
    std::uint32_t index = table_.find(
        hash, [&](std::uint32_t other) { return key_of(counts_[other]) == key_of(count); });
    if (index != IndexTable::kNone) {
      counts_[index].samples += count.samples;
      counts_[index].ns += count.ns;
      return;
    }
    index = static_cast<std::uint32_t>(counts_.size());
    counts_.push_back(count);
    table_.add(hash, index, [&](std::uint32_t other) { return hash_of(counts_[other]); });
  }
  void sort() {
    std::sort(counts_.begin(), counts_.end(),
              [](const StackCount& a, const StackCount& b) { return key_of(a) < key_of(b); });
  }

 private:
  std::vector<StackCount>& counts_;
  IndexTable table_;
};

std::span<const StackCount> part_of(std::span<const StackCount> counts, CompileIndex compile) {
  auto begin = std::partition_point(counts.begin(), counts.end(), [&](const StackCount& count) {
    return count.compile < compile;
  });
  auto end = std::partition_point(
      begin, counts.end(), [&](const StackCount& count) { return count.compile == compile; });
  return {begin, end};
}

}  // namespace

StackCounts::StackCounts(const Attribution& attribution, const Waits& recorded)
    : recorded_waits_(recorded) {
  Summer samples(counts_);
  attribution.for_each([&](const AttributedSample& attributed) {
    samples.add({attributed.compile, attributed.sample.stack, attributed.sample.thread,
                 attributed.phase, 1, attributed.cpu_ns});
    incomplete_ += (attributed.sample.flags & kSampleIncomplete) != 0 ? 1 : 0;
  });
  samples.sort();
  Summer waits(wait_counts_);
  const Tables& tables = attribution.recording().tables();
  for (std::size_t i = 0; i < tables.waits.size(); ++i) {
    const Wait& wait = tables.waits[i];
    if (wait.kind == WaitKind::kNone) continue;
    for (const Waits::Part& part : recorded_waits_.parts(tables, i))
      waits.add(
          {part.owner.compile, wait.stack, wait.thread, part.owner.phase, part.count, part.ns});
  }
  waits.sort();
}

std::span<const StackCount> StackCounts::of(CompileIndex compile) const {
  return part_of(counts_, compile);
}

std::span<const StackCount> StackCounts::waits_of(CompileIndex compile) const {
  return part_of(wait_counts_, compile);
}

}  // namespace dynprof
