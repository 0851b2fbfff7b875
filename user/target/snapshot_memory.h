// Memory of a running process, held still: whole pages, fetched when they are first asked for and then
// answered from here. renew() fetches all of them again, up to 128 in one system call: some
// microseconds, in which a stack changes far less than in the hundred reads of a walk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "user/target/remote_memory.h"

namespace dynprof {

class SnapshotMemory final : public RemoteMemory {
 public:
  explicit SnapshotMemory(RemoteMemory& memory) : memory_(memory) {}

  // A page is given up when this many calls of renew() in a row find it not asked for since the one before. Where what
  // is asked for changes from one reading to the next, a page that is held costs far less than one that is
  // fetched by a system call of its own.
  void keep_unused(unsigned renewals) { kept_renewals_ = renewals; }

  // Reads of this many ranges or more are passed on as they are and nothing of them is held: they are few system calls
  // already, and of pages all over the process.
  void pass_batches(std::size_t ranges) { passed_ranges_ = ranges; }

  // From the pages held. Beyond the limit of pages it reads through, and nothing is held.
  void read_many(std::span<RemoteRange> ranges) override;
  RemoteMemory& current() override { return memory_.current(); }

  // Fetches all pages held anew, by rising address; but those that were not asked for (see keep_unused), or were not
  // there, are given up.
  void renew();
  // Holds nothing any more.
  void clear();

 private:
  static constexpr std::size_t kPageBytes = 4096;
  // Of neighbours that are read as one range.
  static constexpr std::size_t kMaxRangePages = 16;
  static constexpr std::size_t kMaxPages = 2048;  // 8 MB: a stack of 1,024 frames takes 60 to 1,500
  struct Page {
    std::uint64_t address = 0;
    bool there = false;
    unsigned unused = 0;  // renewals since it was asked for
  };
  std::byte* bytes_of(std::size_t page) { return bytes_.data() + page * kPageBytes; }
  void fetch(std::size_t first);
  // All pages of `ranges` that are not held yet, in one read.
  void hold(std::span<const RemoteRange> ranges);
  // The index of a page that is held, or now is; kMaxPages: it is one too many.
  std::size_t find(std::uint64_t address);
  void read_one(RemoteRange& range);

  RemoteMemory& memory_;
  unsigned kept_renewals_ = 1;
  std::size_t passed_ranges_ = SIZE_MAX;
  std::vector<Page> pages_;
  std::vector<std::byte> bytes_;
  std::unordered_map<std::uint64_t, std::size_t> index_;
};

}  // namespace dynprof
