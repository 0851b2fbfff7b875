#include "user/live/snapshot_memory.h"

#include <algorithm>
#include <cstring>

namespace dynprof {

void SnapshotMemory::clear() {
  pages_.clear();
  index_.clear();
}

void SnapshotMemory::renew() {
  std::erase_if(pages_, [](const Page& page) { return !page.used; });
  index_.clear();
  for (std::size_t i = 0; i < pages_.size(); ++i) {
    pages_[i].used = false;
    index_[pages_[i].address] = i;
  }
  fetch(0);
}

void SnapshotMemory::fetch(std::size_t first) {
  if (bytes_.size() < pages_.size() * kPageBytes) bytes_.resize(pages_.size() * kPageBytes);
  std::vector<RemoteRange> ranges;
  ranges.reserve(pages_.size() - first);
  for (std::size_t i = first; i < pages_.size(); ++i) {
    ranges.push_back({pages_[i].address, std::span(bytes_of(i), kPageBytes)});
  }
  memory_.read_many(ranges);
  for (std::size_t i = first; i < pages_.size(); ++i) {
    pages_[i].there = ranges[i - first].complete();
  }
}

std::size_t SnapshotMemory::find(std::uint64_t address) {
  auto [place, added] = index_.try_emplace(address, pages_.size());
  if (added) {
    if (pages_.size() == kMaxPages) {
      index_.erase(place);
      return kMaxPages;
    }
    pages_.push_back({address, false, false});
    fetch(pages_.size() - 1);
  }
  pages_[place->second].used = true;
  return place->second;
}

void SnapshotMemory::read_one(RemoteRange& range) {
  range.done = 0;
  while (range.done < range.into.size()) {
    std::uint64_t at = range.address + range.done;
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
  for (RemoteRange& range : ranges) read_one(range);
}

}  // namespace dynprof
