#include "user/target/snapshot_memory.h"

#include <algorithm>
#include <cstring>

namespace dynprof {

void SnapshotMemory::clear() {
  pages_.clear();
  index_.clear();
}

void SnapshotMemory::renew() {
  std::erase_if(pages_,
                [&](const Page& page) { return !page.there || page.unused >= kept_renewals_; });
  // Neighbours next to each other, so that they are read as one range.
  std::sort(pages_.begin(), pages_.end(),
            [](const Page& a, const Page& b) { return a.address < b.address; });
  index_.clear();
  for (std::size_t i = 0; i < pages_.size(); ++i) {
    ++pages_[i].unused;
    index_[pages_[i].address] = i;
  }
  fetch(0);
}

void SnapshotMemory::fetch(std::size_t first) {
  if (bytes_.size() < pages_.size() * kPageBytes) bytes_.resize(pages_.size() * kPageBytes);
  // The kernel takes the target's lock on its memory map once for each range.
  std::vector<RemoteRange> ranges;
  std::size_t pages = 0;  // of the last range
  for (std::size_t i = first; i < pages_.size(); ++i) {
    const bool follows = i > first && pages < kMaxRangePages &&
                         pages_[i].address == pages_[i - 1].address + kPageBytes;
    pages = follows ? pages + 1 : 1;
    if (follows)
      ranges.back().into = std::span(ranges.back().into.data(), pages * kPageBytes);
    else
      ranges.push_back({pages_[i].address, std::span(bytes_of(i), kPageBytes)});
  }
  memory_.read_many(ranges);
  std::vector<std::size_t> behind;  // a page of the same range that cannot be read
  std::size_t page = first;
  for (const RemoteRange& range : ranges) {
    const std::size_t read = range.done / kPageBytes;
    for (std::size_t i = 0; i < range.into.size() / kPageBytes; ++i, ++page) {
      pages_[page].there = i < read;
      if (i > read) behind.push_back(page);
    }
  }
  if (behind.empty()) return;
  ranges.clear();
  for (std::size_t i : behind)
    ranges.push_back({pages_[i].address, std::span(bytes_of(i), kPageBytes)});
  memory_.read_many(ranges);
  for (std::size_t i = 0; i < behind.size(); ++i) pages_[behind[i]].there = ranges[i].complete();
}

std::size_t SnapshotMemory::find(std::uint64_t address) {
  auto [place, added] = index_.try_emplace(address, pages_.size());
  if (added) {
    if (pages_.size() == kMaxPages) {
      index_.erase(place);
      return kMaxPages;
    }
    pages_.push_back({address, false, 0});
    fetch(pages_.size() - 1);
  }
  pages_[place->second].unused = 0;
  return place->second;
}

void SnapshotMemory::hold(std::span<const RemoteRange> ranges) {
  const std::size_t first = pages_.size();
  for (const RemoteRange& range : ranges) {
    const std::uint64_t offset = range.address % kPageBytes;
    for (std::uint64_t at = 0; at < offset + range.into.size(); at += kPageBytes) {
      if (pages_.size() == kMaxPages) break;
      const std::uint64_t address = range.address - offset + at;
      if (index_.try_emplace(address, pages_.size()).second) pages_.push_back({address, false, 0});
    }
  }
  if (pages_.size() > first) fetch(first);
}

void SnapshotMemory::read_one(RemoteRange& range) {
  range.done = 0;
  while (range.done < range.into.size()) {
    std::uint64_t at = range.address + range.done;
    if (at < kPageBytes) return;  // by a null pointer: nothing is ever there
    std::uint64_t offset = at % kPageBytes;
    std::size_t page = find(at - offset);
    if (page == kMaxPages) {
      memory_.read_many(std::span(&range, 1));
      return;
    }
    if (!pages_[page].there) return;
    std::size_t size = std::min<std::size_t>(range.into.size() - range.done, kPageBytes - offset);
    std::memcpy(range.into.data() + range.done, bytes_of(page) + offset, size);
    range.done += size;
  }
}

void SnapshotMemory::read_many(std::span<RemoteRange> ranges) {
  if (ranges.size() >= passed_ranges_) return memory_.read_many(ranges);
  if (ranges.size() > 1) hold(ranges);
  for (RemoteRange& range : ranges) read_one(range);
}

}  // namespace dynprof
