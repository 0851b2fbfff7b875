// The rest of a large file, written past the page cache (O_DIRECT). Through the cache, a trace of gigabytes costs a
// page of it for each 4 KiB, 0.3 to 2.4 s of CPU time a gigabyte, and takes that memory from the programs of the
// machine: see docs/development/overhead.md, "Large exports".
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <string_view>

namespace dynprof {

class DirectBlock {
 public:
  // The descriptor's position and each write must be multiples of this: the largest block of the usual disks.
  static constexpr std::size_t kAlignment = 4096;
  static constexpr std::size_t kSize = 2 << 20;

  // Null where the file system writes through the cache only. The descriptor must stay open; what is written to it
  // meanwhile must go through this.
  static std::unique_ptr<DirectBlock> begin(int fd);

  // False: errno says why.
  bool write(std::string_view bytes);
  // The part that fills no block, through the cache. Must be called once, last.
  bool finish();

 private:
  explicit DirectBlock(int fd) : fd_(fd) {}
  bool flush();

  struct Freed {
    void operator()(char* block) const { std::free(block); }
  };
  int fd_;
  bool direct_ = true;
  std::unique_ptr<char, Freed> block_;
  std::size_t filled_ = 0;
};

}  // namespace dynprof
