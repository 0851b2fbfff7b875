// Memory of a running process, held still: blocks of it, fetched when they are first asked for and then
// answered from here. renew() fetches all of them again, up to 128 in one system call: some
// microseconds, in which a stack changes far less than in the hundred reads of a walk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "user/target/remote_memory.h"

namespace dynprof {

class SnapshotMemory final : public RemoteMemory {
 public:
  // Whole pages where each range that is read takes the lock of the target's memory map, and less where memory is read
  // in place: the target's CPU has to fetch each cache line again that was read here, when it writes there.
  static std::size_t usual_block_bytes();

  explicit SnapshotMemory(RemoteMemory& memory, std::size_t block_bytes = usual_block_bytes())
      : memory_(memory), block_bytes_(block_bytes) {}

  // A block is given up when this many calls of renew() in a row find it not asked for since the one before. Where what
  // is asked for changes from one reading to the next, a block that is held costs far less than one that is
  // fetched by a system call of its own.
  void keep_unused(unsigned renewals) { kept_renewals_ = renewals; }

  // Reads of this many ranges or more are passed on as they are and nothing of them is held: they are few system calls
  // already, and of blocks all over the process.
  void pass_batches(std::size_t ranges) { passed_ranges_ = ranges; }

  // From the blocks held. Beyond the limit it reads through, and nothing is held.
  void read_many(std::span<RemoteRange> ranges) override;
  RemoteMemory& current() override { return memory_.current(); }

  // Fetches all blocks held anew, by rising address; but those that were not asked for (see keep_unused), or were not
  // there, are given up.
  void renew();
  // Holds nothing any more.
  void clear();

 private:
  static constexpr std::size_t kPageBytes = 4096;
  static constexpr std::size_t kSmallBytes = 512;
  // Of neighbours that are read as one range.
  static constexpr std::size_t kMaxRangeBytes = 16 * kPageBytes;
  // 8 MB: a stack of 1,024 frames takes 60 to 1,500 pages.
  static constexpr std::size_t kMaxBytes = 2048 * kPageBytes;
  struct Block {
    std::uint64_t address = 0;
    bool there = false;
    unsigned unused = 0;  // renewals since it was asked for
  };
  std::byte* bytes_of(std::size_t block) { return bytes_.data() + block * block_bytes_; }
  bool full() const { return blocks_.size() * block_bytes_ >= kMaxBytes; }
  void fetch(std::size_t first);
  // All blocks of `ranges` that are not held yet, in one read.
  void hold(std::span<const RemoteRange> ranges);
  // The index of a block that is held, or now is; nullopt: it is one too many.
  std::optional<std::size_t> find(std::uint64_t address);
  void read_one(RemoteRange& range);

  RemoteMemory& memory_;
  const std::size_t block_bytes_;
  unsigned kept_renewals_ = 1;
  std::size_t passed_ranges_ = SIZE_MAX;
  std::vector<Block> blocks_;
  std::vector<std::byte> bytes_;
  std::unordered_map<std::uint64_t, std::size_t> index_;
};

}  // namespace dynprof
