#include "user/target/snapshot_memory.h"

#include <algorithm>
#include <cstring>

#include "user/target/in_place_reader.h"

namespace dynprof {

std::size_t SnapshotMemory::usual_block_bytes() {
  return InPlaceReader::installed() ? kSmallBytes : kPageBytes;
}

void SnapshotMemory::clear() {
  blocks_.clear();
  index_.clear();
}

void SnapshotMemory::renew() {
  std::erase_if(blocks_,
                [&](const Block& block) { return !block.there || block.unused >= kept_renewals_; });
  // Neighbours next to each other, so that they are read as one range.
  std::sort(blocks_.begin(), blocks_.end(),
            [](const Block& a, const Block& b) { return a.address < b.address; });
  index_.clear();
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    ++blocks_[i].unused;
    index_[blocks_[i].address] = i;
  }
  fetch(0);
}

void SnapshotMemory::fetch(std::size_t first) {
  const std::size_t bytes = blocks_.size() * block_bytes_;
  if (bytes_.size() < bytes) bytes_.resize(bytes);
  // The kernel takes the target's lock on its memory map once for each range.
  std::vector<RemoteRange> ranges;
  std::size_t size = 0;  // of the last range
  for (std::size_t i = first; i < blocks_.size(); ++i) {
    const bool follows = i > first && size < kMaxRangeBytes &&
                         blocks_[i].address == blocks_[i - 1].address + block_bytes_;
    size = follows ? size + block_bytes_ : block_bytes_;
    if (follows)
      ranges.back().into = std::span(ranges.back().into.data(), size);
    else
      ranges.push_back({blocks_[i].address, std::span(bytes_of(i), block_bytes_)});
  }
  memory_.read_many(ranges);
  std::vector<std::size_t> behind;  // a block of the same range that cannot be read
  std::size_t block = first;
  for (const RemoteRange& range : ranges) {
    const std::size_t read = range.done / block_bytes_;
    for (std::size_t i = 0; i < range.into.size() / block_bytes_; ++i, ++block) {
      blocks_[block].there = i < read;
      if (i > read) behind.push_back(block);
    }
  }
  if (behind.empty()) return;
  ranges.clear();
  for (std::size_t i : behind)
    ranges.push_back({blocks_[i].address, std::span(bytes_of(i), block_bytes_)});
  memory_.read_many(ranges);
  for (std::size_t i = 0; i < behind.size(); ++i) blocks_[behind[i]].there = ranges[i].complete();
}

std::optional<std::size_t> SnapshotMemory::find(std::uint64_t address) {
  auto [place, added] = index_.try_emplace(address, blocks_.size());
  if (added) {
    if (full()) {
      index_.erase(place);
      return std::nullopt;
    }
    blocks_.push_back({address, false, 0});
    fetch(blocks_.size() - 1);
  }
  blocks_[place->second].unused = 0;
  return place->second;
}

void SnapshotMemory::hold(std::span<const RemoteRange> ranges) {
  const std::size_t first = blocks_.size();
  for (const RemoteRange& range : ranges) {
    const std::uint64_t offset = range.address % block_bytes_;
    for (std::uint64_t at = 0; at < offset + range.into.size(); at += block_bytes_) {
      if (full()) break;
      const std::uint64_t address = range.address - offset + at;
      if (index_.try_emplace(address, blocks_.size()).second)
        blocks_.push_back({address, false, 0});
    }
  }
  if (blocks_.size() > first) fetch(first);
}

void SnapshotMemory::read_one(RemoteRange& range) {
  range.done = 0;
  while (range.done < range.into.size()) {
    std::uint64_t at = range.address + range.done;
    if (at < kPageBytes) return;  // by a null pointer: nothing is ever there
    std::uint64_t offset = at % block_bytes_;
    const std::optional<std::size_t> block = find(at - offset);
    if (!block) {
      memory_.read_many(std::span(&range, 1));
      return;
    }
    if (!blocks_[*block].there) return;
    std::size_t size = std::min<std::size_t>(range.into.size() - range.done, block_bytes_ - offset);
    std::memcpy(range.into.data() + range.done, bytes_of(*block) + offset, size);
    range.done += size;
  }
}

void SnapshotMemory::read_many(std::span<RemoteRange> ranges) {
  if (ranges.size() >= passed_ranges_) return memory_.read_many(ranges);
  if (ranges.size() > 1) hold(ranges);
  for (RemoteRange& range : ranges) read_one(range);
}

}  // namespace dynprof
