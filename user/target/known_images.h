// What was found in files that processes map, so that a file is searched once and not again for each process that maps
// it: a compile with Inductor starts dozens of compilers, each of which is examined some ten times. A file that was
// written to since, or replaced, is another file. For one thread.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "user/target/elf_image.h"

namespace dynprof {

inline constexpr std::size_t kImageSymbols = 7;

struct KnownImage {
  std::vector<ElfImage::Segment> segments;
  bool wants_loader = false;
  std::array<std::uint64_t, kImageSymbols> symbols{};  // as in the file; 0: not there
  // The process that was looked at had no debug offsets of CPython in the data of this file. They are initialized
  // data, hence the same in every process.
  bool no_debug_offsets = false;
};

class KnownImages {
 public:
  struct Key {
    std::uint64_t device = 0;
    std::uint64_t inode = 0;
    std::uint64_t bytes = 0;
    std::int64_t written_ns = 0;
    std::int64_t changed_ns = 0;
    bool exported_only = false;  // which symbols were searched
    auto operator<=>(const Key&) const = default;
  };
  // Nothing: the file cannot be asked.
  static std::optional<Key> key_of(int file, bool exported_only);

  // Null: not known. Valid until the next add().
  KnownImage* find(const Key& key);
  const KnownImage& add(const Key& key, KnownImage image);

 private:
  std::map<Key, KnownImage> images_;
};

}  // namespace dynprof
