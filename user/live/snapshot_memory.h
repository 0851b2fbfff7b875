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

  // From the pages held. Beyond the limit of pages it reads through, and nothing is held.
  void read_many(std::span<RemoteRange> ranges) override;

  // All pages asked for since the last call anew, in the order they were asked for; the others are
  // given up.
  void renew();
  // Holds nothing any more.
  void clear();

 private:
  static constexpr std::size_t kPageBytes = 4096;
  static constexpr std::size_t kMaxPages = 2048;  // 8 MB: a stack of 1,024 frames takes 60 to 1,500
  struct Page {
    std::uint64_t address = 0;
    bool there = false;
    bool used = false;
  };
  std::byte* bytes_of(std::size_t page) { return bytes_.data() + page * kPageBytes; }
  void fetch(std::size_t first);
  // The index of a page that is held, or now is; kMaxPages: it is one too many.
  std::size_t find(std::uint64_t address);
  void read_one(RemoteRange& range);

  RemoteMemory& memory_;
  std::vector<Page> pages_;
  std::vector<std::byte> bytes_;
  std::unordered_map<std::uint64_t, std::size_t> index_;
};

}  // namespace dynprof
